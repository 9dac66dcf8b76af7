"""Damages of totals, of what is known of a task, and of ids, between scripts and Redis."""

from __future__ import annotations

from tests.simulation.damaging import ENDING, EXCHANGE, SETTLING, Condition, Damage, Effect, without

_COUNTS: tuple[Damage, ...] = (
    without(
        "count-done", "a done task isn't counted", "HINCRBY", "count", "1", also="args[1] == 'done'"
    ),
    without(
        "count-taken",
        "a task isn't counted when it comes",
        "HINCRBY",
        "count",
        "1",
        also="args[1] == 'taken'",
    ),
    without(
        "count-queued",
        "what is claimed still counts as queued",
        "HINCRBY",
        "count",
        "1",
        *EXCHANGE,
        also="(claims or bulk) and string.sub(args[1], 1, 7) == 'queued_'",
    ),
    Effect(
        "count-doubled",
        "what comes counts twice as queued",
        "command == 'HINCRBY' and kind == 'count' and string.sub(args[1], 1, 7) == 'queued_'",
        "redis.call(command, key, ...)",
        ("enqueue",),
    ),
    without(
        "count-put-back",
        "what is put back isn't counted",
        "HINCRBY",
        "count",
        "1",
        *ENDING,
        *EXCHANGE,
        also="not claims and not bulk and string.sub(args[1], 1, 7) == 'queued_'",
    ),
    without(
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
    without("count-carried", "what a stage carries is never given back", "HINCRBY", "carried", "0"),
    without(
        "count-late",
        "bytes of what was delayed are never given back",
        "HDEL",
        "task_state",
        "1",
        also="args[1] == 'delayed_bytes'",
    ),
)

_LIVES: tuple[Damage, ...] = (
    without(
        "no-crash",
        "a crash isn't counted",
        "HINCRBY",
        "task_state",
        "1",
        also="args[1] == 'crashes'",
    ),
    without(
        "lost-is-crash",
        "a lost lease counts as a crash",
        "HINCRBY",
        "task_state",
        "1",
        also="args[1] == 'lost_leases' and tonumber(args[2]) > 0",
    ),
    without(
        "crash-is-lost",
        "a death counts as a lost lease for good",
        "HINCRBY",
        "task_state",
        "0",
        also="args[1] == 'lost_leases' and tonumber(args[2]) < 0",
    ),
    Effect(
        "attempt-forgotten",
        "a failed attempt isn't counted",
        "command == 'HSET' and kind == 'task_state' and args[5] == 'attempt'",
        "args[6] = 1 do return redis.call(command, key, unpack(args)) end",
        ("retry",),
    ),
    Effect(
        "stage-forgotten",
        "a task begins its first stage again",
        "command == 'HSET' and kind == 'task_state' and args[5] == 'stage'",
        "args[5] = 'forgotten' do return redis.call(command, key, unpack(args)) end",
        ("advance",),
    ),
    without("no-history", "a done task leaves nothing in the history", "HSET", "history", "1"),
    without(
        "task-stays",
        "a done task's message stays",
        "HDEL",
        "tasks",
        "1",
        *SETTLING,
        also="not claims",
    ),
    without("task-gone", "a failed task's message is gone", "HSET", "task_state", "1", "bury"),
    without(
        "state-stays",
        "a done task's state stays",
        "DEL",
        "task_state",
        "1",
        *SETTLING,
        also="not claims",
    ),
    without("not-dead", "a dead letter isn't listed", "ZADD", "dead", "1"),
    without("run-stays", "a run is known beyond its end", "HDEL", "runs", "1"),
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
    without(
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
        (
            (
                r"is_replaced = other and sequence_of\(other\) > sequence_of\(entry\)",
                "is_replaced = false",
            ),
        ),
    ),
)

OF_RECORDS = (*_COUNTS, *_LIVES, *_IDS)
