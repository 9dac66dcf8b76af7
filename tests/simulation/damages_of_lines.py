"""Damages of locks, checkpoints and places in line, between scripts and Redis."""

from __future__ import annotations

from tests.simulation.damaging import ENDING, EXCHANGE, SETTLING, Condition, Damage, Effect, without

_LOCKS: tuple[Damage, ...] = (
    Effect(
        "no-lock",
        "a group is claimed without its lock",
        "kind == 'lock' and (command == 'MSETNX' or command == 'SETNX')",
        "do return 1 end",
        EXCHANGE,
    ),
    Effect(
        "lock-unseen",
        "a group that runs is ready as soon as something comes behind",
        "kind == 'lock' and command == 'EXISTS'",
        "do return 0 end",
        ("enqueue",),
    ),
    without(
        "lock-stays",
        "a lock isn't freed when its task is done",
        "DEL",
        "lock",
        "1",
        *EXCHANGE,
        also="not claims and ARGV[5] == '0'",
    ),
    without("lock-outlives", "a lock outlives its daemon's lease", "DEL", "lock", "1", *ENDING),
    Effect(
        "lock-by-stranger",
        "a lock is freed by a stranger: by whoever brings the group's next task",
        "command == 'LPUSH' and kind == 'lane'",
        "redis.call('DEL', KEYS[1] .. 'lock:' .. string.match(key, 'lane:(.*)$'))",
        ("enqueue",),
    ),
    Condition(
        "unlock-again",
        "a repeated or stale settle frees the lock of whoever runs the group now",
        (
            (
                r"if not is_live then",
                "if not is_live then unlock(group, fence, now)",
            ),
            (
                r"local first = place_in\(checkpoint, fences, following\)",
                "local first = place_in(checkpoint, fences, following) "
                "if not first or not fences[first] then unlock(group, fences[1], now) end",
            ),
        ),
    ),
    without(
        "lock-behind",
        "a group goes on under the lock of the claim before",
        "SET MSET",
        "lock",
        "1",
        *EXCHANGE,
    ),
    without("no-place", "a task that shares its group isn't counted", "ZADD", "sharing", "1"),
    without(
        "place-stays",
        "a limit isn't given back when a task of its group ends",
        "ZREM",
        "sharing",
        "1",
        *SETTLING,
        also="not claims",
    ),
    without(
        "place-outlives",
        "a limit isn't given back when a lease ends",
        "ZREM",
        "sharing",
        "1",
        *ENDING,
    ),
)

_CHECKPOINTS: tuple[Damage, ...] = (
    without(
        "no-checkpoint",
        "a claim's checkpoint isn't written",
        "HSET",
        "worker",
        "1",
        *EXCHANGE,
        also="(claims or bulk and string.sub(args[2], 1, 1) == 'L')",
    ),
    without(
        "checkpoint-stays",
        "a settled claim's checkpoint isn't cleared",
        "HSET",
        "worker",
        "1",
        *EXCHANGE,
        "retry",
        "advance",
        "bury",
        also="not claims and string.sub(args[2], 1, 1) == 'S'",
    ),
    without(
        "run-checkpoint",
        "a run's checkpoint stays at its first task",
        "HSET",
        "worker",
        "1",
        *EXCHANGE,
        also="not claims and not bulk and string.sub(args[2], 1, 1) == 'L'",
    ),
    Condition(
        "settle-twice",
        "a settle that comes again is applied again",
        ((r"and 'settled' or 'lost'", "and 'live' or 'lost'"),),
    ),
    Condition(
        "stale-settle",
        "a stale fence settles",
        ((r"and 'settled' or 'lost'", "and 'settled' or 'live'"),),
    ),
    Condition(
        "stale-session",
        "who lost its session settles and claims on",
        ((r"if number \.\. process ~= session then", "if false then"),),
    ),
    Condition(
        "stale-all",
        "neither the session nor the fence of a settle is looked at",
        (
            (r"if number \.\. process ~= session then", "if false then"),
            (r"if not number then return 'EXPIRED' end", ""),
            (
                r"if not checkpoint then return 'lost' end",
                "if not checkpoint then return 'live' end",
            ),
            (r"and 'settled' or 'lost'", "and 'settled' or 'live'"),
        ),
    ),
    Effect(
        "claim-again",
        "a claim whose answer was lost is given a second task beside it",
        "command == 'HMGET' and kind == 'worker' and (claims or bulk)",
        "local found = redis.call(command, key, ...) "
        "for i = bulk and ARGV[4] + ARGV[7] + 1 or 1, #found do "
        "if found[i] and string.sub(found[i], 1, 1) == 'L' then "
        "found[i] = 'S' .. string.sub(found[i], 2, 17) end end do return found end",
        EXCHANGE,
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
        "command == 'RPUSH' and kind == 'lane' and not claims "
        "and ARGV[5] ~= '0' and ARGV[7] == '0'",
        "do return redis.call('LPUSH', key, ...) end",
        EXCHANGE,
    ),
    Effect(
        "crashed-at-the-end",
        "a task whose daemon died loses its place",
        "command == 'RPUSH' and kind == 'lane'",
        "do return redis.call('LPUSH', key, ...) end",
        ENDING,
    ),
    Condition(
        "put-in-front",
        "what comes back goes to the head of its group, whatever stands before it",
        ((r"if not head or sequence_of\(head\) > sequence then", "if true then"),),
    ),
    without(
        "without-its-first",
        "a run is put back without its first task",
        "RPUSH LINSERT",
        "lane",
        "1",
        *ENDING,
    ),
    without("plain-lost", "a plain task isn't put back", "ZADD", "quarantined_plain", "1", *ENDING),
    Effect(
        "claimed-and-left",
        "the head that is claimed stays in its group",
        "command == 'RPOP' and kind == 'lane' and not args[1]",
        "do return redis.call('LINDEX', key, -1) end",
        EXCHANGE,
    ),
    Effect(
        "run-left",
        "the tasks of a run that has ended stay in their group",
        "command == 'RPOP' and kind == 'lane' and args[1] and bulk",
        "do return {} end",
        EXCHANGE,
        unseen="no run of 20 seeds ended with several tasks untold: a test of the scripts shows it",
    ),
    Effect(
        "same-place",
        "two tasks of a batch have one place",
        "command == 'LPUSH' and kind == 'lane'",
        "local newest = redis.call('LINDEX', key, 0) if newest then do return "
        "redis.call('LPUSH', key, string.sub(newest, 1, 16) .. string.sub(args[1], 17)) end end",
        ("enqueue",),
    ),
    without(
        "never-due",
        "what was delayed doesn't come back",
        "ZADD",
        "delayed",
        "1",
        "retry",
        "advance",
    ),
    without("due-twice", "what is due comes back each time", "ZREM", "delayed", "1", "promote"),
    without("held-for-ever", "a group that waits for its head is never ready", "ZADD", "held", "1"),
    without(
        "not-ready",
        "a group isn't ready again behind its task",
        "ZADD",
        "ready",
        "1",
        *SETTLING,
        also="not claims",
    ),
    Condition(
        "bulk-while-held",
        "what is done in bulk takes no notice of a pause, a park or a recovery",
        ((r"TAG \.\. 'parked', .*TAG \.\. 'recovering', ", ""),),
    ),
    without(
        "no-quarantine",
        "a task with crashes waits among all others",
        "ZADD",
        "quarantined_groups",
        "1",
    ),
    without(
        "no-mark",
        "a daemon runs two in quarantine",
        "HSET",
        "daemon",
        "1",
        *EXCHANGE,
        also="claims",
    ),
)

OF_LINES = (*_LOCKS, *_CHECKPOINTS, *_PLACES)
