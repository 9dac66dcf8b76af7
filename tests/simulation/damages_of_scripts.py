"""Damages between scripts and Redis: writes that are lost, doubled or misplaced, checks not made."""

from __future__ import annotations

from tests.simulation.damaging import Condition, Damage, Effect

_SETTLING = ("complete", "proceed", "hop", "hand_on", "retry", "advance", "bury", "release")
_CLAIMING = ("claim_grouped", "claim_plain")
_ENDING = ("reap", "register", "leave")


def _without(
    name: str,
    says: str,
    commands: str,
    kind: str,
    reply: str,
    *verbs: str,
    also: str = "true",
    unseen: str = "",
) -> Effect:
    """Some commands on some kind of key aren't run, and answered as if they were."""
    wanted = " or ".join(f"command == '{each}'" for each in commands.split())
    where = f"({wanted}) and kind == '{kind}' and {also}"
    return Effect(name, says, where, f"do return {reply} end", tuple(verbs), unseen=unseen)


_LOCKS: tuple[Damage, ...] = (
    Effect(
        "no-lock",
        "a group is claimed without its lock",
        "kind == 'lock' and (command == 'MSETNX' or command == 'SETNX')",
        "do return 1 end",
        ("claim_grouped",),
    ),
    Effect(
        "lock-unseen",
        "a group that runs is ready as soon as something comes behind",
        "kind == 'lock' and command == 'EXISTS'",
        "do return 0 end",
        ("enqueue",),
    ),
    _without(
        "lock-stays", "a lock isn't freed when its task is done", "DEL", "lock", "1", "complete"
    ),
    _without("lock-outlives", "a lock outlives its daemon's lease", "DEL", "lock", "1", *_ENDING),
    Effect(
        "lock-by-stranger",
        "a lock is freed by a stranger: by whoever settles a claim that is lost or settled",
        "kind == 'lock' and command == 'SETNX' and redis.call('EXISTS', key) == 1",
        "redis.call('DEL', key)",
    ),
    Condition(
        "unlock-again",
        "a repeated or stale settle frees the lock of whoever runs the group now",
        r"if state ~= 'live' then return state end",
        "if state ~= 'live' then unlock(group, fence, clock()) return state end",
    ),
    _without(
        "lock-behind",
        "a group goes on under the lock of the claim before",
        "SET",
        "lock",
        "1",
        "proceed",
        "hop",
        "hand_on",
    ),
    _without("no-place", "a task that shares its group isn't counted", "ZADD", "sharing", "1"),
    _without(
        "place-stays",
        "a limit isn't given back when a task of its group ends",
        "ZREM",
        "sharing",
        "1",
        *_SETTLING,
    ),
    _without(
        "place-outlives",
        "a limit isn't given back when a lease ends",
        "ZREM",
        "sharing",
        "1",
        *_ENDING,
    ),
)

_CHECKPOINTS: tuple[Damage, ...] = (
    _without(
        "no-checkpoint", "a claim's checkpoint isn't written", "HSET", "worker", "1", *_CLAIMING
    ),
    _without(
        "checkpoint-stays",
        "a settled claim's checkpoint isn't cleared",
        "HSET",
        "worker",
        "1",
        "complete",
        "retry",
        "advance",
        "bury",
        "release",
    ),
    _without(
        "run-checkpoint",
        "a run's checkpoint stays at its first task",
        "HSET",
        "worker",
        "1",
        "proceed",
        "hop",
        "hand_on",
    ),
    Condition(
        "settle-twice",
        "a settle that comes again is applied again",
        r"and 'settled' or 'lost'",
        "and 'live' or 'lost'",
    ),
    Condition(
        "stale-settle",
        "a stale fence settles",
        r"and 'settled' or 'lost'",
        "and 'settled' or 'live'",
    ),
    Condition(
        "stale-session",
        "who lost its session settles and claims on",
        r"if number \.\. process ~= session then",
        "if false then",
    ),
    Condition(
        "stale-all",
        "neither the session nor the fence of a settle is looked at",
        r"if state ~= 'OK' then return \{ state, \{\} \} end|and 'settled' or 'lost'"
        r"|if not checkpoint then return 'lost' end",
        "and 'settled' or 'live'",
    ),
    Effect(
        "claim-again",
        "a claim whose answer was lost is given a second task beside it",
        "command == 'HMGET' and kind == 'worker'",
        "local found = redis.call(command, key, ...) for i = 1, #found do if found[i] and "
        "string.sub(found[i], 1, 1) == 'L' then found[i] = 'S' .. string.sub(found[i], 2, 17) end end "
        "do return found end",
        _CLAIMING,
    ),
)

_PLACES: tuple[Damage, ...] = (
    Effect(
        "wrong-end",
        "the head of a group is taken from the wrong end",
        "command == 'RPOP' and kind == 'lane'",
        "do return redis.call('LPOP', key, ...) end",
    ),
    Effect(
        "pushed-in",
        "what comes into a group goes to its head",
        "command == 'LPUSH' and kind == 'lane'",
        "do return redis.call('RPUSH', key, ...) end",
        ("enqueue",),
    ),
    Effect(
        "retry-at-the-end",
        "a task that is retried loses its place",
        "command == 'RPUSH' and kind == 'lane'",
        "do return redis.call('LPUSH', key, ...) end",
        ("retry",),
    ),
    Effect(
        "stage-at-the-end",
        "a task loses its place between two stages",
        "command == 'RPUSH' and kind == 'lane'",
        "do return redis.call('LPUSH', key, ...) end",
        ("advance",),
    ),
    Effect(
        "released-at-the-end",
        "a task that is handed back loses its place",
        "command == 'RPUSH' and kind == 'lane'",
        "do return redis.call('LPUSH', key, ...) end",
        ("release",),
    ),
    Effect(
        "crashed-at-the-end",
        "a task whose daemon died loses its place",
        "command == 'RPUSH' and kind == 'lane'",
        "do return redis.call('LPUSH', key, ...) end",
        _ENDING,
    ),
    Condition(
        "put-in-front",
        "what comes back goes to the head of its group, whatever stands before it",
        r"if not head or arrival_of\(head\) > arrival then",
        "if true then",
    ),
    Condition(
        "reverse-order",
        "tasks of one daemon are put back in reverse order",
        r"a\.element > b\.element",
        "a.element < b.element",
    ),
    _without(
        "without-its-first",
        "a run is put back without its first task",
        "RPUSH LINSERT",
        "lane",
        "1",
        *_ENDING,
    ),
    _without("plain-lost", "a plain task isn't put back", "RPUSH ZADD", "plain", "1", *_ENDING),
    Effect(
        "claimed-and-left",
        "the head that is claimed stays in its group",
        "command == 'RPOP' and kind == 'lane'",
        "do return redis.call('LINDEX', key, -1) end",
        ("claim_grouped",),
    ),
    Effect(
        "same-place",
        "two tasks of a batch have one place",
        "command == 'LPUSH' and kind == 'lane'",
        "if redis.call('EXISTS', key) == 1 then local newest = redis.call('LINDEX', key, 0) do return "
        "redis.call('LPUSH', key, string.sub(newest, 1, 16) .. string.sub(args[1], 17)) end end",
        ("enqueue",),
    ),
    _without(
        "never-due",
        "what was delayed doesn't come back",
        "ZADD",
        "delayed",
        "1",
        "retry",
        "advance",
    ),
    _without("due-twice", "what is due comes back each time", "ZREM", "delayed", "1", "promote"),
    _without(
        "held-for-ever", "a group that waits for its head is never ready", "ZADD", "held", "1"
    ),
    _without(
        "not-ready", "a group isn't ready again behind its task", "ZADD", "ready", "1", *_SETTLING
    ),
    _without(
        "no-suspects", "a task with crashes waits among all others", "ZADD", "suspect_groups", "1"
    ),
    _without("no-mark", "two suspects run on one daemon", "HSET", "daemon", "1", *_CLAIMING),
)

_COUNTS: tuple[Damage, ...] = (
    _without(
        "count-done", "a done task isn't counted", "HINCRBY", "count", "1", also="args[1] == 'done'"
    ),
    _without(
        "count-taken",
        "a task isn't counted when it comes",
        "HINCRBY",
        "count",
        "1",
        also="args[1] == 'taken'",
    ),
    _without(
        "count-queued",
        "what is claimed still counts as queued",
        "HINCRBY",
        "count",
        "1",
        *_CLAIMING,
        also="string.sub(args[1], 1, 7) == 'queued_'",
    ),
    Effect(
        "count-doubled",
        "what comes counts twice as queued",
        "command == 'HINCRBY' and kind == 'count' and string.sub(args[1], 1, 7) == 'queued_'",
        "redis.call(command, key, ...)",
        ("enqueue",),
    ),
    _without(
        "count-put-back",
        "what is put back isn't counted",
        "HINCRBY",
        "count",
        "1",
        *_ENDING,
        "release",
        also="string.sub(args[1], 1, 7) == 'queued_'",
    ),
    _without(
        "count-running",
        "what failed still counts as running",
        "HINCRBY",
        "count",
        "1",
        "retry",
        "bury",
        "advance",
        also="string.sub(args[1], 1, 8) == 'running_'",
    ),
    _without(
        "count-carried", "what a stage carries is never given back", "HINCRBY", "carried", "0"
    ),
    _without(
        "count-late",
        "bytes of what was delayed are never given back",
        "HDEL",
        "life",
        "1",
        also="args[1] == 'delayed_bytes'",
    ),
)

_LIVES: tuple[Damage, ...] = (
    _without(
        "no-crash", "a crash isn't counted", "HINCRBY", "life", "1", also="args[1] == 'crashes'"
    ),
    _without(
        "lost-is-crash",
        "a lost lease counts as a crash",
        "HINCRBY",
        "life",
        "1",
        also="args[1] == 'lost_leases' and tonumber(args[2]) > 0",
    ),
    _without(
        "crash-is-lost",
        "a death counts as a lost lease for good",
        "HINCRBY",
        "life",
        "0",
        also="args[1] == 'lost_leases' and tonumber(args[2]) < 0",
    ),
    Effect(
        "attempt-forgotten",
        "a failed attempt isn't counted",
        "command == 'HSET' and kind == 'life' and args[5] == 'attempt'",
        "args[6] = 1 do return redis.call(command, key, unpack(args)) end",
        ("retry",),
    ),
    Effect(
        "stage-forgotten",
        "a task begins its first stage again",
        "command == 'HSET' and kind == 'life' and args[5] == 'stage'",
        "args[5] = 'forgotten' do return redis.call(command, key, unpack(args)) end",
        ("advance",),
    ),
    _without("no-history", "a done task leaves nothing in the history", "HSET", "history", "1"),
    _without("task-stays", "a done task's message stays", "HDEL", "tasks", "1", *_SETTLING),
    _without("task-gone", "a failed task's message is gone", "HSET", "life", "1", "bury"),
    _without("life-stays", "a done task's life stays", "DEL", "life", "1", *_SETTLING),
    _without("not-dead", "a dead letter isn't listed", "ZADD", "dead", "1"),
    _without("run-stays", "a run is known beyond its end", "HDEL", "runs", "1"),
)

_IDS: tuple[Damage, ...] = (
    Effect(
        "ended-unknown",
        "dedup forgets an id once its task is over",
        "command == 'HEXISTS' and kind == 'history'",
        "do return 0 end",
        ("enqueue",),
    ),
    Effect(
        "waiting-unknown",
        "dedup doesn't know an id that waits",
        "command == 'HSETNX' and kind == 'tasks'",
        "redis.call('HSET', key, ...) do return 1 end",
        ("enqueue",),
    ),
    Effect(
        "known-beforehand",
        "a message that comes first is taken for a duplicate",
        "command == 'HSETNX' and kind == 'tasks' and string.sub(args[1], -1) == '7'",
        "redis.call('HSETNX', key, ...) do return 0 end",
        ("enqueue",),
    ),
    _without(
        "superseded-runs",
        "what a newer task replaced runs all the same",
        "LREM ZREM",
        "lane",
        "1",
        "enqueue",
    ),
    Condition(
        "superseded-by-older",
        "a retried task replaces the newer one that waits",
        r"is_replaced = other and arrival_of\(other\) > arrival_of\(element\)",
        "is_replaced = false",
    ),
)

_SESSIONS: tuple[Damage, ...] = (
    Effect(
        "reap-living",
        "the reaper takes a living daemon's claims",
        "command == 'ZRANGEBYSCORE' and kind == 'daemons'",
        "args[2] = '+inf' do return redis.call(command, key, unpack(args)) end",
        ("reap",),
    ),
    Effect(
        "reap-early",
        "the reaper takes claims half a lease early",
        "command == 'ZRANGEBYSCORE' and kind == 'daemons'",
        "args[2] = tostring(tonumber(args[2]) + 1000000) "
        "do return redis.call(command, key, unpack(args)) end",
        ("reap",),
    ),
    _without("reap-nothing", "nobody takes over", "ZRANGEBYSCORE", "daemons", "{}", "reap"),
    _without(
        "reap-forgets",
        "a daemon's claims are forgotten with its lease",
        "HVALS",
        "worker",
        "{}",
        "reap",
    ),
    _without(
        "namesake-forgets",
        "a session of the same name doesn't take over what was held",
        "HVALS",
        "worker",
        "{}",
        "register",
    ),
    _without("leave-forgets", "who leaves hands nothing over", "HVALS", "worker", "{}", "leave"),
    Condition(
        "namesake-refused",
        "a later process of a name doesn't replace an earlier one",
        r"'REPLACED' or 'EXPIRED'",
        "'OK' or 'OK'",
    ),
    _without("renewal-lost", "a renewal doesn't extend the lease", "ZADD", "daemons", "1", "renew"),
    Effect(
        "renewal-of-the-dead",
        "a renewal extends a lease that was handed over",
        "command == 'HMGET' and kind == 'daemon'",
        "local found = redis.call(command, key, ...) if not found[1] then "
        "found[1], found[2] = string.sub(ARGV[2], 1, 16), string.sub(ARGV[2], 17) end "
        "do return found end",
        ("renew",),
    ),
    _without(
        "daemon-stays",
        "a daemon that was taken over from is still listed",
        "ZREM",
        "daemons",
        "1",
        *_ENDING,
    ),
    Condition(
        "no-wait",
        "a promoted server's claims are not waited for",
        r"if ends > now then",
        "if false then",
    ),
    Condition(
        "short-wait",
        "a promoted server waits for half a lease",
        r"longest_lease\(lease\)\n",
        "longest_lease(lease) / 2\n",
    ),
    Condition(
        "any-epoch",
        "a session goes on under a server that may not know all of its claims",
        r"return shown\.epoch == epoch\.id or [^\n]*",
        "return true",
    ),
    Condition(
        "fences-again",
        "a promoted server gives fences again that the old one gave",
        r"if now > fence then",
        "if false then",
    ),
    Condition(
        "fences-unshown",
        "nobody tells a promoted server which fences there were",
        r"if behind > 0 then",
        "if false then",
        unseen="a promoted server's fences begin above the clock, which no old server's fences reach",
    ),
    Effect(
        "claimed-while-it-waits",
        "claims are given while a promoted server waits",
        "command == 'EXISTS' and kind == 'paused_all'",
        "do return 0 end",
        _CLAIMING,
    ),
    Condition(
        "proof-of-all",
        "a recovery ends with the first daemon that comes",
        r"tonumber\(state\[1\]\) <= 0 and state\[2\] == '0'",
        "true",
    ),
    Condition(
        "expired-claims",
        "a daemon claims after its lease has run out",
        r"if lease < now or ",
        "if ",
    ),
    _without(
        "wake-lost",
        "a wake is lost",
        "RPUSH",
        "sim:wakes",
        "1",
        unseen="it costs time only, until the next renewal tells what waits",
    ),
)

OF_SCRIPTS = (*_LOCKS, *_CHECKPOINTS, *_PLACES, *_COUNTS, *_LIVES, *_IDS, *_SESSIONS)
