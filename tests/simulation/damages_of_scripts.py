"""Damages between scripts and Redis: what a script's call does out of turn, or leaves undone."""

from __future__ import annotations

from tests.simulation.damaging import (
    ENDING,
    EXCHANGE,
    SETTLING,
    Damage,
    Effect,
    changed,
    without,
)

_AT_THE_END = "do return redis.call('LPUSH', key, ...) end"
_STALE = (
    (r"== ended_with and #fences \+ 1 or nil", "== ended_with and #fences + 1 or 1"),
    (r"local is_live = .*", "local is_live = settled_before(checkpoint) ~= fence"),
)
_OTHER_SESSION = (r"if number \.\. process ~= session then", "if false then")
_SETTLES = "not claims"  # of the calls of an exchange, those that settle by the rules

_LOCKS: tuple[Damage, ...] = (
    Effect("no-lock: a group is claimed without its lock",
           "MSETNX SETNX lock", "do return 1 end", EXCHANGE),
    Effect("lock-unseen: a group that runs is ready as soon as something comes behind",
           "EXISTS lock", "do return 0 end", ("enqueue",)),
    without("lock-stays: a lock isn't freed when its task is done",
            "DEL lock", *EXCHANGE, also="not claims and ARGV[5] == '0'"),
    without("lock-outlives: a lock outlives its daemon's lease", "DEL lock", *ENDING),
    Effect("lock-by-stranger: a lock is freed by the daemon that brings the group's next task",
           "LPUSH lane",
           "redis.call('DEL', KEYS[1] .. 'lock:' .. string.match(key, 'lane:(.*)$'))",
           ("enqueue",)),
    changed("unlock-again: a repeated or stale settle frees the lock of who runs the group now",
            (r"if not is_live then",
             "if not is_live then unlock(group, fence, now)"),
            (r"local first = place_in\(checkpoint, fences, following\)",
             "local first = place_in(checkpoint, fences, following) "
             "if not first or not fences[first] then unlock(group, fences[1], now) end")),
    without("lock-behind: a group goes on under the lock of the claim before",
            "SET MSET lock", *EXCHANGE),
    without("no-place: a task that shares its group isn't counted", "ZADD sharing"),
    without("place-stays: a limit isn't given back when a task of its group ends",
            "ZREM sharing", *SETTLING, also=_SETTLES),
    without("place-outlives: a limit isn't given back when a lease ends", "ZREM sharing", *ENDING),
)  # fmt: skip

_CHECKPOINTS: tuple[Damage, ...] = (
    without("no-checkpoint: a claim's checkpoint isn't written",
            "HSET worker", *EXCHANGE,
            also="(claims or bulk and string.sub(args[2], 1, 1) == 'L')"),
    without("checkpoint-stays: a settled claim's checkpoint isn't cleared",
            "HSET worker", *SETTLING, also="not claims and string.sub(args[2], 1, 1) == 'S'"),
    without("run-checkpoint: a run's checkpoint stays at its first task",
            "HSET worker", *EXCHANGE,
            also="not claims and not bulk and string.sub(args[2], 1, 1) == 'L'"),
    changed("settle-twice: a settle that comes again is applied again",
            (r"== ended_with and #fences \+ 1 or nil", "== ended_with and 1 or nil"),
            (r"if not is_live then",
             "if not is_live and settled_before(checkpoint) ~= fence then")),
    changed("stale-settle: a stale fence settles", *_STALE),
    changed("stale-session: who lost its session settles and claims on", _OTHER_SESSION),
    changed("stale-all: neither the session nor the fence of a settle is looked at",
            _OTHER_SESSION,
            (r"if not number then return 'EXPIRED' end", ""),
            (r"if not checkpoint then return nil end", "if not checkpoint then return 1 end"),
            *_STALE),
    Effect("claim-again: a claim whose answer was lost is given a second task beside it",
           "HMGET worker",
           "local found = redis.call(command, key, ...) "
           "for i = bulk and ARGV[4] + ARGV[7] + 1 or 1, #found do "
           "if found[i] and string.sub(found[i], 1, 1) == 'L' then "
           "found[i] = 'S' .. string.sub(found[i], 2, 17) end end do return found end",
           EXCHANGE, also="(claims or bulk)"),
)  # fmt: skip

_PLACES: tuple[Damage, ...] = (
    Effect("wrong-end: the head of a group is taken from the wrong end",
           "RPOP lane", "do return redis.call('LPOP', key, ...) end"),
    Effect("pushed-in: what comes into a group goes to its head",
           "LPUSH lane", "do return redis.call('RPUSH', key, ...) end", ("enqueue",)),
    Effect("retry-at-the-end: a task that is retried loses its place",
           "RPUSH lane", _AT_THE_END, ("retry",)),
    Effect("stage-at-the-end: a task loses its place between two stages",
           "RPUSH lane", _AT_THE_END, ("advance",)),
    Effect("released-at-the-end: a task that is handed back loses its place",
           "RPUSH lane", _AT_THE_END, EXCHANGE,
           also="not claims and ARGV[5] ~= '0' and ARGV[7] == '0'"),
    Effect("crashed-at-the-end: a task whose daemon died loses its place",
           "RPUSH lane", _AT_THE_END, ENDING),
    changed("put-in-front: what comes back goes to the head of its group, before older ones",
            (r"if older == 0 then", "if true then")),
    without("without-its-first: a run is put back without its first task",
            "RPUSH LINSERT lane", *ENDING),
    without("plain-lost: a plain task isn't put back", "ZADD quarantined_plain", *ENDING),
    Effect("claimed-and-left: the head that is claimed stays in its group",
           "RPOP lane", "do return redis.call('LINDEX', key, -1) end", EXCHANGE,
           also="not args[1]"),
    Effect("run-left: the tasks of a run that has ended stay in their group",
           "RPOP lane", "do return {} end", EXCHANGE, also="args[1] and bulk",
           unseen="no run of 20 seeds ended with several tasks untold: a test of scripts shows it"),
    Effect("same-place: two tasks of a batch have one place",
           "LPUSH lane",
           "local newest = redis.call('LINDEX', key, 0) if newest then do return "
           "redis.call('LPUSH', key, string.sub(newest, 1, 16) .. string.sub(args[1], 17)) end end",
           ("enqueue",)),
    without("never-due: what was delayed doesn't come back", "ZADD delayed", "retry", "advance"),
    without("due-twice: what is due comes back each time", "ZREM delayed", "promote"),
    without("held-for-ever: a group that waits for its head is never ready", "ZADD held"),
    without("not-ready: a group isn't ready again behind its task",
            "ZADD ready", *SETTLING, also=_SETTLES),
    changed("over-its-type: as many of a type run as come",
            (r"C\.running\(cap\) >= limit\.concurrency", "false")),
    without("type-kept: a task that has ended counts for its type ever after", "HDEL cap_charged"),
    without("type-stands: what waits for its type never stands where claims look",
            "HSET cap_turns"),
    changed("bulk-while-held: what is done in bulk heeds no pause, no park, no recovery",
            (r"TAG \.\. 'parked', .*TAG \.\. 'recovering', ", "")),
    without("no-quarantine: a task with crashes waits among all others",
            "ZADD quarantined_groups"),
    without("no-mark: a daemon runs two in quarantine", "HSET daemon", *EXCHANGE, also="claims"),
)  # fmt: skip

_IS_QUEUED = "string.sub(args[1], 1, 7) == 'queued_'"
_COUNTS: tuple[Damage, ...] = (
    without("count-done: a done task isn't counted", "HINCRBY count", also="args[1] == 'done'"),
    without("count-taken: a task isn't counted when it comes",
            "HINCRBY count", also="args[1] == 'taken'"),
    without("count-queued: what is claimed still counts as queued",
            "HINCRBY count", *EXCHANGE, also=f"(claims or bulk) and {_IS_QUEUED}"),
    Effect("count-doubled: what comes counts twice as queued",
           "HINCRBY count", "redis.call(command, key, ...)", ("enqueue",), also=_IS_QUEUED),
    without("count-put-back: what is put back isn't counted",
            "HINCRBY count", *ENDING, *EXCHANGE, also=f"not claims and not bulk and {_IS_QUEUED}"),
    without("count-running: what failed still counts as running",
            "HINCRBY count", "retry", "bury", "advance",
            also="string.sub(args[1], 1, 8) == 'running_'"),
    without("count-carried: what a stage carries is never given back",
            "HINCRBY carried", reply="0"),
    without("count-late: bytes of what was delayed are never given back",
            "HDEL task_state", also="args[1] == 'delayed_bytes'"),
)  # fmt: skip

_STATES: tuple[Damage, ...] = (
    without("no-crash: a crash isn't counted", "HINCRBY task_state", also="args[1] == 'crashes'"),
    without("lost-is-crash: a lost lease counts as a crash",
            "HINCRBY task_state", also="args[1] == 'lost_leases' and tonumber(args[2]) > 0"),
    without("crash-is-lost: a death counts as a lost lease for good",
            "HINCRBY task_state", reply="0",
            also="args[1] == 'lost_leases' and tonumber(args[2]) < 0"),
    Effect("attempt-forgotten: a failed attempt isn't counted",
           "HSET task_state",
           "args[6] = 1 do return redis.call(command, key, unpack(args)) end",
           ("retry",), also="args[5] == 'attempt'"),
    Effect("stage-forgotten: a task begins its first stage again",
           "HSET task_state",
           "args[5] = 'forgotten' do return redis.call(command, key, unpack(args)) end",
           ("advance",), also="args[5] == 'stage'"),
    without("no-history: a done task leaves nothing in the history", "HSET history"),
    without("task-stays: a done task's message stays", "HDEL tasks", *SETTLING, also=_SETTLES),
    without("task-gone: a failed task's message is gone", "HSET task_state", "bury"),
    without("state-stays: a done task's state stays", "DEL task_state", *SETTLING, also=_SETTLES),
    without("not-dead: a dead letter isn't listed", "ZADD dead"),
    without("run-stays: a run is known beyond its end", "HDEL runs"),
)  # fmt: skip

_IDS: tuple[Damage, ...] = (
    Effect("ended-unknown: dedup forgets an id once its task is over",
           "HEXISTS history", "do return 0 end", ("enqueue",)),
    Effect("waiting-unknown: dedup doesn't know an id that waits",
           "HSETNX tasks", "redis.call('HSET', key, ...) do return 1 end", ("enqueue",)),
    Effect("known-beforehand: a message that comes first is taken for a duplicate",
           "HSETNX tasks", "redis.call('HSETNX', key, ...) do return 0 end", ("enqueue",),
           also="string.sub(args[1], -1) == '7'"),
    without("superseded-runs: what a newer task replaced runs all the same",
            "LREM ZREM lane", "enqueue"),
    changed("superseded-by-older: a retried task replaces the newer one that waits",
            (r"is_replaced = other and sequence_of\(other\) > sequence_of\(entry\)",
             "is_replaced = false")),
    changed("another-makes-way: what runs makes way for a newer task of another type",
            (r"found == name and fence", "fence")),
)  # fmt: skip

_WAITING = r"call\('LLEN', TAG \.\. 'lane:' \.\. m\.group\) "
_BOUNDS: tuple[Damage, ...] = (
    changed("full-takes-more: a group that is full takes one more task in",
            (_WAITING + r">= bound", "call('LLEN', TAG .. 'lane:' .. m.group) > bound")),
    changed("full-too-early: a group refuses messages while it has room for one",
            (_WAITING + r">= bound", "call('LLEN', TAG .. 'lane:' .. m.group) + 1 >= bound")),
    changed("full-redriven: a redrive doesn't ask whether there is room in the group",
            (r"if finds_group_full\(\) then return -3 end", "")),
)  # fmt: skip

_CANCELS: tuple[Damage, ...] = (
    without("message-unheeded: a message that cancels a task is acked, and nothing notes that",
            "HSET cancels", "cancel_named"),
)  # fmt: skip

_REAPED = "do return redis.call(command, key, unpack(args)) end"
_SESSIONS: tuple[Damage, ...] = (
    Effect("reap-living: the reaper takes a living daemon's claims",
           "ZRANGEBYSCORE daemons", f"args[2] = '+inf' {_REAPED}", ("reap",)),
    Effect("reap-early: the reaper takes claims half a lease early",
           "ZRANGEBYSCORE daemons",
           f"args[2] = tostring(tonumber(args[2]) + 1000000) {_REAPED}", ("reap",)),
    without("reap-nothing: no daemon takes over", "ZRANGEBYSCORE daemons", "reap", reply="{}"),
    without("reap-forgets: a daemon's claims are forgotten with its lease",
            "HGETALL worker", "reap", reply="{}"),
    without("namesake-forgets: a session of the same name doesn't take over what was held",
            "HGETALL worker", "register", reply="{}"),
    without("leave-forgets: who leaves hands nothing over", "HGETALL worker", "leave", reply="{}",
            unseen="its lease ends, and others take over: late; a test of scripts sees it"),
    changed("namesake-refused: a later process of a name doesn't replace an earlier one",
            (r"'REPLACED' or 'EXPIRED'", "'OK' or 'OK'")),
    without("renewal-lost: a renewal doesn't extend the lease", "ZADD daemons", "renew"),
    Effect("renewal-of-the-dead: a renewal extends a lease that was handed over",
           "HMGET daemon",
           "local found = redis.call(command, key, ...) if not found[1] then "
           "found[1], found[2] = string.sub(ARGV[2], 1, 16), string.sub(ARGV[2], 17) end "
           "do return found end",
           ("renew",),
           unseen="by its own clock its handlers have ended, and settles ask for the session"),
    without("daemon-stays: a daemon that was taken over from is still listed",
            "ZREM daemons", *ENDING),
    changed("no-wait: a promoted server's claims are not waited for",
            (r"if ends > now then", "if false then")),
    changed("short-wait: a promoted server waits for half a lease",
            (r"\+ longest_lease\(lease\)", "+ longest_lease(lease) / 2")),
    changed("any-epoch: a session goes on under a server that may not know all of its claims",
            (r"return shown\.epoch == epoch\.id or [^\n]*", "return true")),
    changed("fences-again: a promoted server gives fences again that the old one gave",
            (r"raise_fence\(now\)", "")),
    changed("fences-unshown: no daemon tells a promoted server which fences there were",
            (r"raise_fence\(shown\.fence\)", ""), (r"raise_fence\(tonumber\(last\)\)", ""),
            unseen="a promoted server's fences begin above the clock: no older one reaches that"),
    Effect("claimed-while-it-waits: claims are given while a promoted server waits",
           "EXISTS paused_all", "do return 0 end", EXCHANGE, also="claims"),
    changed("given-again: a claim of an earlier server is given again under its fence",
            (r"if claim and tonumber\(claim\.fence\) <= found then", "if false then")),
    changed("run-kept: a run goes on behind its lease, though a server may have lost its takeover",
            (r"\(has_come and may_have_lost_a_run\(daemon, now\)\)", "false"),
            unseen="none of 400 seeds came there: a test of the scripts shows it"),
    changed("proof-of-all: a recovery ends with the first daemon that comes",
            (r"tonumber\(state\[1\]\) <= 0 and state\[2\] == '0'", "true")),
    changed("expired-claims: a daemon claims after its lease has run out",
            (r"if lease < now or ", "if "),
            unseen="a daemon whose lease is over, by its own clock, asks for no claim"),
    without("wake-lost: a wake is lost", "RPUSH sim:wakes"),
)  # fmt: skip

_TYPES: tuple[Damage, ...] = (
    Effect("types-unheard: no daemon hears which types the others know",
           "HEXISTS types", "do return 0 end", ("defer",)),
    without("unknown-stays: a task is still known to wait for its type once it is claimed",
            "ZREM unknown_tasks"),
)  # fmt: skip

_EXPIRY: tuple[Damage, ...] = (
    without("expiry-stays: a task that has started may expire", "ZREM expiring", *EXCHANGE),
    without("expired-stays: what has expired stays where it waited",
            "LREM lane ZREM ordered delayed", "expire"),
)  # fmt: skip

_TOLD: tuple[Damage, ...] = (
    Effect("untold: the end of a task is not told", "RPUSH outbox", "do return 1 end",
           ("retry", "bury", "expire", "exchange")),
    changed("told-unconfirmed: what is to be told goes before it is confirmed",
            (r"if confirmed > 0 then place, size = find\(confirmed\) end",
             "place, size = #read(0, 0), #(read(0, 0)[1] or '')")),
    changed("two-relays: any daemon relays at any time",
            (r"if is_taken\('relay', ARGV\[1\], number, now\) then [^\n]*", ""),
            unseen="each tells all in order, and what is told twice may be"),
    changed("outbox-stays-full: claims don't go on once all is told",
            (r"if left < 0\.9 \* OUTBOX_MOST and", "if false and")),
)  # fmt: skip

OF_SCRIPTS = (
    *(*_LOCKS, *_CHECKPOINTS, *_PLACES, *_COUNTS, *_STATES),
    *(*_IDS, *_BOUNDS, *_CANCELS, *_SESSIONS, *_TYPES, *_EXPIRY, *_TOLD),
)
