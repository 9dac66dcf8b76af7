"""Scripts damaged on purpose: for each damage, checker or auditor name the broken invariant.

A damage is Lua that stands between the shared rules and the script's own text. Most of them lie
between the script and Redis: `call` is replaced by one that spoils one kind of command.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from groupflow.servers import RedisServer
from groupflow.store.keys import Keys
from groupflow.store.scripts import Scripts, Verb, read_lua, render
from tests.store.bench import Bench
from tests.store.scenario import live


@dataclass(frozen=True, slots=True)
class Damage:
    """What is broken, in which scripts, and which invariants must be seen to be broken."""

    name: str
    verbs: tuple[Verb, ...]
    lua: str
    breaks: frozenset[str]


def _spoil(rule: str) -> str:
    """Lua after which every command goes through `rule`, which may answer it or change it."""
    return f"""
local sound = call
local function is(name, prefix) return string.sub(name or '', 1, #prefix) == prefix end
call = function(command, key, ...)
  if key == nil then return sound(command) end
  local more = {{ ... }}
  {rule}
  return sound(command, key, unpack(more))
end
"""


# What an exchange is asked for: the scenario settles and claims by exchanges of their own.
_CLAIMS = "ARGV[4] .. ARGV[5] == '00' and "
_COMPLETES = "ARGV[4] ~= '0' and "
_RELEASES = "ARGV[5] ~= '0' and "
_HAND_OVERS = (Verb.REAP, Verb.REGISTER, Verb.LEAVE)


def _damage(
    name: str, breaks: str, verbs: tuple[Verb, ...], *, rule: str = "", lua: str = ""
) -> Damage:
    return Damage(name, verbs, lua or _spoil(rule), frozenset(breaks.split()))


DAMAGES = [
    _damage(
        "enqueue_loses_the_last_message_of_a_batch",
        "S1 S2",
        (Verb.ENQUEUE,),
        lua="for _ = 1, 10 do ARGV[#ARGV] = nil end\n",
    ),
    _damage(
        "enqueue_forgets_the_body",
        "S1",
        (Verb.ENQUEUE,),
        rule="if command == 'HSETNX' and key == K.tasks then return 1 end",
    ),
    _damage(
        "enqueue_without_dedup",
        "S6",
        (Verb.ENQUEUE,),
        rule="""
        if command == 'HEXISTS' then return 0 end
        if command == 'HSETNX' then sound('HSET', key, unpack(more)) return 1 end""",
    ),
    _damage(
        "enqueue_forgets_what_is_over",
        "S6",
        (Verb.ENQUEUE,),
        rule="if command == 'HEXISTS' then return 0 end",
    ),
    _damage(
        "enqueue_at_the_wrong_end",
        "S4",
        (Verb.ENQUEUE,),
        rule="if command == 'LPUSH' and is(key, K.lane) then command = 'RPUSH' end",
    ),
    _damage(
        "enqueue_into_another_group",
        "S9",
        (Verb.ENQUEUE,),
        rule="if command == 'LPUSH' and key == K.lane .. 'b' then key = K.lane .. 'a' end",
    ),
    _damage(
        "enqueue_does_not_count",
        "S7",
        (Verb.ENQUEUE,),
        rule="if command == 'HINCRBY' and more[1] == 'queued_grouped' then return 0 end",
    ),
    _damage(
        "enqueue_leaves_a_new_group_unplaced",
        "S8",
        (Verb.ENQUEUE,),
        lua="place = function() return false end\nplace_unlocked = place\n",
    ),
    _damage(
        "claim_without_the_lock",
        "S4",
        (Verb.EXCHANGE,),
        rule="if (command == 'MSETNX' or command == 'SETNX') and is(key, K.lock) then return 1 end",
    ),
    _damage(
        "claim_of_the_newest",
        "S4",
        (Verb.EXCHANGE,),
        rule="if command == 'RPOP' and is(key, K.lane) then command = 'LPOP' end",
    ),
    _damage(
        "claim_that_leaves_the_task_waiting",
        "S6 S7",
        (Verb.EXCHANGE,),
        rule="""
        if command == 'RPOP' and key == K.plain then
          local found = sound('LRANGE', key, -1, -1)
          return more[1] and found or found[1] or false
        end""",
    ),
    _damage(
        "claim_without_a_checkpoint",
        "S1 S8",
        (Verb.EXCHANGE,),
        rule=f"if {_CLAIMS}command == 'HSET' and is(key, K.worker) then return 0 end",
    ),
    _damage(
        "claim_with_a_fence_that_stays",
        "S3",
        (Verb.EXCHANGE,),
        rule="if key == K.fence then return 9 end",
    ),
    _damage(
        "complete_that_does_not_place_the_group",
        "S8",
        (Verb.EXCHANGE,),
        lua="place_freed = function() return false end\n",
    ),
    _damage(
        "complete_that_keeps_the_lock",
        "S8",
        (Verb.EXCHANGE,),
        rule=f"if {_COMPLETES}command == 'DEL' then"
        """
          local kept = {}
          for _, each in ipairs({ key, unpack(more) }) do
            if not is(each, K.lock) then kept[#kept + 1] = each end
          end
          return #kept == 0 and 0 or sound('DEL', unpack(kept))
        end""",
    ),
    _damage(
        "complete_that_keeps_the_body",
        "L7",
        (Verb.EXCHANGE,),
        rule="if command == 'HDEL' and key == K.tasks then return 1 end",
    ),
    _damage(
        "complete_without_the_fence_check",
        "S3 S7",
        (Verb.EXCHANGE,),
        lua=f"""
        local sound = state_of
        state_of = function(...) return {_COMPLETES}'live' or sound(...) end
        """,
    ),
    _damage(
        "complete_without_a_history",
        "S1",
        (Verb.EXCHANGE,),
        rule="if command == 'HSET' and key == K.history_new then return 0 end",
    ),
    _damage(
        "release_without_the_fence_check",
        "S3 S6",
        (Verb.EXCHANGE,),
        lua="end_claim = function() return 'live' end\n",
    ),
    _damage(
        "release_at_the_wrong_end",
        "S4",
        (Verb.EXCHANGE,),
        rule="if command == 'RPUSH' and is(key, K.lane) then command = 'LPUSH' end",
    ),
    _damage(
        "release_without_the_lock_freed",
        "S8",
        (Verb.EXCHANGE,),
        rule=f"if {_RELEASES}command == 'DEL' and is(key, K.lock) then return 0 end",
    ),
    _damage(
        "bury_into_nowhere",
        "S1",
        (Verb.BURY,),
        rule="if command == 'ZADD' and key == K.dead then return 1 end",
    ),
    _damage(
        "bury_without_the_fence_check",
        "S3 S6",
        (Verb.BURY,),
        lua="end_claim = function() return 'live' end\n",
    ),
    _damage(
        "hand_over_that_forgets_the_lock",
        "S8",
        _HAND_OVERS,
        rule="if command == 'DEL' and is(key, K.lock) then return 0 end",
    ),
    _damage(
        "hand_over_that_forgets_the_crash",
        "S5",
        _HAND_OVERS,
        rule="if command == 'HINCRBY' and is(key, K.task_state) then return 1 end",
    ),
    _damage(
        "hand_over_that_loses_plain_tasks",
        "S1",
        _HAND_OVERS,
        rule="if command == 'ZADD' and key == K.quarantined_plain then return 1 end",
    ),
    _damage(
        "hand_over_that_keeps_the_claims",
        "S6 S8",
        _HAND_OVERS,
        rule="if command == 'DEL' and is(key, K.worker) then return sound('DEL', unpack(more)) end",
    ),
    _damage(
        "hand_over_that_puts_the_task_last",
        "S4",
        _HAND_OVERS,
        rule="if command == 'RPUSH' and is(key, K.lane) then command = 'LPUSH' end",
    ),
    _damage(
        "group_that_is_ready_while_it_runs",
        "S4",
        (Verb.ENQUEUE, Verb.EXCHANGE, Verb.REAP),
        lua="""
        local sound = place
        local function is_over(group, now) sound(group, now) return place_unlocked(group, now) end
        place = is_over
        place('a', clock())
        """,
    ),
]


def damaged(damage: Damage) -> Scripts:
    """All scripts, some of them damaged."""
    scripts = Scripts("oldest")
    for verb in damage.verbs:
        shebang, _, text = read_lua(verb.file).partition("\n")
        scripts[verb] = render(verb, "oldest", f"{shebang}\n{damage.lua}{text}")
    return scripts


async def test_sound_scripts_pass(store_server: RedisServer) -> None:
    """The scenario finds nothing wrong where nothing is."""
    bench = Bench(store_server.url)
    try:
        assert await live(bench) == []
    finally:
        await bench.close()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
async def test_damage_is_seen(redis_server: RedisServer, damage: Damage) -> None:
    """What the damage breaks is named."""
    keys = Keys("damaged")
    bench = Bench(redis_server.url, keys=keys, scripts=damaged(damage))
    try:
        seen = {violation.invariant for violation in await live(bench)}
    finally:
        await bench.close()
    assert damage.breaks <= seen
