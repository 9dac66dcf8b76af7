"""What operators look at: all facts of a task, at no cost that grows with its body or headers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.core.routing import scope_of
from groupflow.operate.bulk import count, each_step, read_causes, step
from groupflow.operate.busy import read_busy, read_tops
from groupflow.operate.daemons import find_daemon
from groupflow.operate.dead import DeadLetters, Filter
from groupflow.operate.groups import Groups
from groupflow.operate.listing import ListedGroups, ListedState, list_groups, list_tasks
from groupflow.operate.pages import UnknownCursor
from groupflow.operate.reasons import cause_of
from groupflow.operate.scripts import OperatorVerb
from groupflow.operate.tenants import Tenants
from groupflow.operate.totals import read_totals
from groupflow.servers import RedisServer
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from groupflow.store.keys import Keys
from groupflow.store.outbox import look
from groupflow.store.scripts import Scripts, read_lua, render
from groupflow.store.settlements import Advance, Retry
from tests.operate.spread import Spread, all_pages
from tests.operate.test_archiving import archive_all
from tests.store.bench import Bench, arrival, bury
from tests.store.task_state import HOUR, found, letter

SMALL_REPLY = 16384  # bytes that one command of a look may have Redis copy
LOOKS = (
    *(OperatorVerb.DEAD, OperatorVerb.LETTER, OperatorVerb.FIND, OperatorVerb.LIST),
    *(OperatorVerb.GROUPS, OperatorVerb.LANE, OperatorVerb.BUSY, OperatorVerb.WHY),
    *(OperatorVerb.STATUS, OperatorVerb.DAEMON, OperatorVerb.TENANTS),
)
# Refuses a call that copies a large text from any key.
_WATCHED = f"""
local sound = call
call = function(...)
  local reply = sound(...)
  for _, each in ipairs(type(reply) == 'table' and reply or {{ reply }}) do
    if type(each) == 'string' and #each > {SMALL_REPLY} then
      error(table.concat({{ ... }}, ' ') .. ' read ' .. #each .. ' bytes')
    end
  end
  return reply
end
"""
LISTED: tuple[ListedState, ...] = ("queued", "running", "delayed", "done")
LISTED_GROUPS: tuple[ListedGroups, ...] = ("ready", "running", "delayed")
HEADERS = {f"h{n}": "x" * 4000 for n in range(10)}
BODY = b'{"rows": "' + b"y" * 300_000 + b'"}'


def watched() -> Scripts:
    """The scripts, of which those that look at tasks fail where they read much."""
    scripts = Scripts("oldest")
    for verb in LOOKS:
        shebang, _, text = read_lua(verb.file).partition("\n")
        scripts[verb] = render(verb, "oldest", f"{shebang}\n{_WATCHED}{text}")
    return scripts


def heavy(id_: str, group: str | None = None, **facts: Any) -> Arrival:
    """A message with much in its headers and its body."""
    envelope = Envelope("import", group, "acme", "rule" if group else None, HEADERS, BODY)
    return Arrival(id_, envelope, **facts)


def light(id_: str, group: str | None = None, **facts: Any) -> Arrival:
    """A message that lies in Redis as a short text."""
    return Arrival(id_, Envelope("import", group, "acme", None, {"h": "é"}, b"{}"), **facts)


@pytest.fixture
async def shop(store_server: RedisServer) -> AsyncIterator[Bench]:
    async with Bench(store_server.url, keys=Keys("looks")) as shop:
        shop.client.scripts.update(watched())
        yield shop


@pytest.mark.parametrize("make", [heavy, light])
async def test_no_look_reads_headers_or_bodies(shop: Bench, make: Any) -> None:
    """In each state of a task, each look tells its type and tenant, and reads little."""
    namespace = shop.namespace
    await shop.enqueue(make("plain"), make("late", delay=60.0), make("d", "dying"))
    await shop.enqueue(make("r0", "run"), make("r1", "run"), make("door", dead="no type"))
    await shop.enqueue(make("s0", "staged"), make("h0", "hold", delay=60.0), make("f0", "fail"))
    daemon = await shop.daemon()
    claims = {c.task.id: c for c in await daemon.claim("grouped", "w1", "w2", "w3", "w4")}
    assert {claim.task.body for claim in claims.values()} == {make("x").envelope.body}
    await daemon.settle(bury(claims["d"], park=True))
    await daemon.settle(Advance(claims["s0"], "two", b'"' + b"c" * 900_000 + b'"'))
    await daemon.settle(Retry(claims["f0"], 60.0, [{"error": "E", "message": "m" * 2000}]))

    states = {"plain": "queued", "late": "delayed", "d": "dead", "r0": "running", "r1": "queued"}
    states |= {"door": "dead", "s0": "queued", "h0": "delayed", "f0": "delayed"}
    for id_, state in states.items():
        task = await found(shop, id_)
        assert (task.id, task.state, task.type, task.tenant) == (id_, state, "import", "acme")
    for listed in LISTED:
        await list_tasks(namespace, listed, 100)
    for of_groups in LISTED_GROUPS:
        for row in (await list_groups(namespace, of_groups, tenant="acme")).groups:
            assert (row.type, row.tenant) == ("import", "acme")
    for group in ("run", "staged", "hold", "fail"):
        lane = await Groups(namespace).lane(group)
        assert [(task.type, task.tenant) for task in lane.tasks] == [("import", "acme")]
        assert (await Groups(namespace).why(group)).head
    assert (await Groups(namespace).lane("fail")).tasks[0].errors[0]["error"] == "E"
    await read_totals(namespace)
    await read_tops(namespace)
    await read_busy(namespace)
    told = await find_daemon(namespace, "d1")
    assert told is not None
    assert {(each.id, each.type, each.tenant) for each in told.tasks} == {("r0", "import", "acme")}
    assert {each[8:] for each in (await Tenants(namespace).count()).seen} == {b"acme"}
    await _look_at_the_dead(shop, make)
    await daemon.settle(Retry(claims["r0"], 60.0, []))
    shop.events.clear()  # retries are the model's business
    assert shop.audit() == []


async def test_a_daemon_in_all_partitions(spread: Spread) -> None:
    """What it tells and holds as of one daemon; what it alone does where it does that."""
    daemons = await spread.daemons()
    await spread.daemons("d2")
    pools = {"plain": 1, "grouped": 2}
    info = {"version": "9", "pools": pools, "draining": True, "parts": ["page"]}
    for daemon in daemons:
        await daemon.sessions.tell({"host": "h", "pid": 7, **info}, {})
    groups = [spread.group_in(n) for n in range(3)]
    await spread.enqueue(*(arrival(f"{group}-0", group) for group in groups))
    claims = [await daemons[n].claim_one(worker="grouped-0") for n in range(3)]
    await look(daemons[1].bench.client, daemons[1].session, 0)
    found = await find_daemon(spread.without(3), "d1")
    assert found is not None
    assert (found.version, found.workers, found.parts) == ("9", pools, ["page"])
    assert (found.draining, found.busy) == (True, {"plain": 0, "grouped": 2})
    places = [(each.partition, each.claims, each.roles) for each in found.partitions]
    assert places == [(0, 1, []), (1, 1, ["relay"]), (2, 1, [])]
    assert [each.id for each in found.tasks] == [f"{group}-0" for group in groups]
    assert {each.worker for each in found.tasks} == {"grouped-0"}
    assert [each.partition for each in found.away] == [3]
    other = await find_daemon(spread.namespace, "d2")
    assert other is not None
    assert [(each.claims, each.roles) for each in other.partitions] == [(0, [])] * 4
    assert await find_daemon(spread.namespace, "d3") is None
    for daemon, claim in zip(daemons, claims, strict=False):
        await daemon.complete(claim)


async def _look_at_the_dead(shop: Bench, make: Any) -> None:
    letters = DeadLetters(shop.namespace)
    page = await letters.page(Filter(tenant="acme"))
    told = [(each.id, each.type, each.attempts, each.died_at_the_door) for each in page.letters]
    assert told == [("d", "import", 1, False), ("door", "import", 0, True)]
    story = await letter(shop, "d")
    assert (story.group, story.errors[0]["message"]) == ("dying", "broken")
    assert (await letters.envelope("d"))[0].body == make("x").envelope.body


async def test_a_filter_is_tried_where_the_letters_are(bench: Bench) -> None:
    """By a part of the reason, which is text and no pattern, and by all the rest as it is."""
    await bench.enqueue(light("a", dead="50% of [rows]"), light("b", "g"), arrival("c", "g"))
    daemon = await bench.daemon()
    for _ in range(2):
        await daemon.settle(bury(await daemon.claim_one(), "gone (50%)"))
    letters = DeadLetters(bench.namespace)
    of_one: dict[str, dict[Any, str]] = {
        "reason": {"50%": "abc", "[rows]": "a", "g.ne": "", "GONE": "bc"},
        "kind": {"rejected": "a", "EJECT": "a", "gone": ""}, "group": {"g": "bc"},
        "type": {"*": "abc", "imp*": "ab", "": "", "Imp*": "", "imp.*": "", "*t": "", "tt": ""},
        "tenant": {"acme": "ab"}, "since": {0.0: ""},
    }  # fmt: skip
    rows: list[tuple[dict[str, Any], str]] = [
        ({}, "abc"),
        *(({name: each}, ids) for name, told in of_one.items() for each, ids in told.items()),
        ({"since": HOUR, "reason": "gone"}, "bc"),
        *(({"type": "t", "group": "g"}, "c"), ({"type": "t", "tenant": "acme"}, "")),
    ]
    for wanted, ids in rows:
        page = await letters.page(Filter(**wanted))
        assert sorted(each.id for each in page.letters) == [*ids], wanted


async def test_what_died_at_the_door_is_routed_once(bench: Bench) -> None:
    """Once it has had a route, a later death of it is as any other."""
    await bench.enqueue(arrival("a0", dead="no tenant"))
    dead = await letter(bench, "a0")
    assert dead.died_at_the_door
    route = Envelope("other", "a", "43", "crm", {}, b"{}")
    assert await DeadLetters(bench.namespace).redrive(dead, route)
    task = await found(bench, "a0")
    assert (task.type, task.tenant, task.group) == ("other", "43", "a")
    daemon = await bench.daemon()
    await daemon.settle(bury(await daemon.claim_one()))
    dead = await letter(bench, "a0")
    assert (dead.died_at_the_door, dead.type, dead.tenant) == (False, "other", "43")
    assert dead.attempts == 1
    bench.events.clear()  # it ran by another route than it was published with


async def test_a_message_stays_known_though_its_letter_changes_scope(bench: Bench) -> None:
    """Its ack was lost: it comes again, and is refused again."""
    refused = arrival("a0", dead="its headers are too large")
    await bench.enqueue(refused)
    route = Envelope("other", "a", "43", "crm", {}, b"{}", scope_of("crm", "43"))
    letters = DeadLetters(bench.namespace)
    assert await letters.redrive(await letter(bench, "a0"), route, priority=0.0)
    for again in (refused, replace(refused, envelope=route, dead="")):
        assert (await bench.enqueuer.enqueue([again])).taken == [False]
    assert (await letters.page(Filter())).letters == []
    assert (await found(bench, "a0")).group == "a"
    bench.events.clear()  # it runs by another route than it was published with


# All that match a filter, in bounded steps, while others die and go

ROWS = Filter(reason="ROW")


async def _die(bench: Bench, *ids: str, reason: str = "no such row") -> None:
    for id_ in ids:
        await bench.enqueue(arrival(id_, dead=reason))


async def test_a_step_is_not_moved_by_letters_that_die_or_go(bench: Bench) -> None:
    """A letter that dies again behind its redrive is not met again; nor is one passed over."""
    await _die(bench, "a", "b", "c", "d", "e")
    letters, met = DeadLetters(bench.namespace), list[str]()
    cursor: str | None = "0"
    while cursor is not None:
        some = await step(bench.namespace, ROWS, cursor, most=2)
        met += [letter.id for letter in some.letters]
        assert await letters.drop(some.letters[0])
        await _die(bench, f"{some.letters[0].id} again")
        cursor = some.next
    assert met == ["e", "d", "c", "b", "a"]


async def test_a_step_looks_at_a_bounded_number(bench: Bench) -> None:
    """Where few pass the filter it ends without them, and the next goes on behind."""
    await _die(bench, "a")
    await bench.enqueue(*(arrival(f"other-{n}", dead="full") for n in range(1000)))
    first = await step(bench.namespace, ROWS)
    assert (first.letters, first.next) == ([], "0.1")
    last = await step(bench.namespace, ROWS, "0.1")
    assert ([letter.id for letter in last.letters], last.next) == (["a"], None)
    for wanted, number in ((ROWS, 1), (Filter(), 1001), (Filter(since=3600.0), 1001)):
        assert await count(bench.namespace, wanted) == number


async def test_what_died_earlier_is_not_looked_at(bench: Bench) -> None:
    await _die(bench, "old", "new")
    bench.raw.zadd(bench.keys("dead"), {"old": 1_000_000})
    for since, ids in ((3600.0, ["new"]), (1e9, ["new"]), (9e9, ["new", "old"])):
        found = await step(bench.namespace, Filter(since=since))
        assert [letter.id for letter in found.letters] == ids
        assert found.next is None


async def test_an_archived_letter_is_found_by_what_its_stub_says(bench: Bench) -> None:
    await _die(bench, "a")
    await archive_all(bench)
    for wanted, number in ((ROWS, 1), (Filter(reason="such", since=60), 1), (Filter(type="u"), 0)):
        assert await count(bench.namespace, wanted) == number


ALIKE = {
    "no … here": ("no 17 here", "no inv_8-a3, 'x y' here", f"no {uuid4()} here", "no 8\t9 here"),
    "customer's … refused": ("customer's 10.0.0.1:80 refused", "customer's deadbeef refused"),
    "line …: a …": ("line 8: a 'b' \"it's\" `d`", 'line 2026-11-26T22:55:10Z: a 1.5, "b\nmore'),
    "x" * 80: ("x" * 80, "x" * 5000 + " 7", "x" * 190 + "ü" * 9),
}


@pytest.mark.parametrize(("cause", "reasons"), ALIKE.items(), ids=[*ALIKE])
def test_deaths_of_one_cause(cause: str, reasons: tuple[str, ...]) -> None:
    """What varies is masked; the tail of a long reason, which an archived letter lacks, is none."""
    named = {cause_of("t", "K", each) for each in reasons}
    assert {each for each, _ in named} == {cause}
    others = (("t", "K", "other"), ("t", "L", cause), ("u", "K", cause))
    assert len(named | {cause_of(*each) for each in others}) == 4


async def test_letters_by_cause(spread: Spread) -> None:
    """Counted, the newest named, found by it alone, archived or not; without words by kind."""
    for n in range(30):
        await spread.enqueue(arrival(f"a{n}", dead=f"invoice {n} of {'é' * 150}"))
        await spread.enqueue(light(f"b{n}", dead=f"invoice {n}"), arrival(f"c{n}", dead="no row"))
    for bench in spread.benches[:2]:
        await archive_all(bench)
    namespace, letters = spread.namespace, DeadLetters(spread.namespace)
    told = await read_causes(namespace, Filter())
    assert (told.is_whole, told.matching, told.looked_at, told.causes) == (True, 90, 90, 3)
    assert [(each.type, each.count, each.example) for each in told.reasons] == [
        ("t", 30, "c29"), ("import", 30, "b29"), ("t", 30, "a29")
    ]  # fmt: skip
    assert told.reasons[2].reason.startswith("invoice … of éé")
    assert (await read_causes(namespace, Filter(), looks=None)).reasons == told.reasons
    part = await read_causes(namespace, Filter(), looks=1, shown=1)
    assert (part.causes, len(part.reasons)) == (3, 1)
    for cause, name in zip(told.reasons, "cba", strict=True):
        wanted = Filter(cause=cause.cause)
        assert await count(namespace, wanted) == 30
        pages = await all_pages(partial(letters.page, wanted, limit=7))
        assert {each.id[0] for page in pages for each in page.letters} == {name}
        assert [len(page.letters) for page in pages if page.letters] == [7, 7, 7, 7, 2]
        assert (await read_causes(namespace, wanted)).reasons == [cause]
    by_kind = await read_causes(namespace, Filter(with_words=False))
    assert {(each.type, each.reason, each.count) for each in by_kind.reasons} == {
        ("t", "rejected", 60), ("import", "rejected", 30)
    }  # fmt: skip
    words = Filter(cause=told.reasons[0].cause, with_words=False)
    assert await count(namespace, words) == 0


async def test_steps_go_over_all_partitions(spread: Spread) -> None:
    """One that is away is passed over, and named; a cursor of more partitions is refused."""
    for n in range(20):
        await spread.enqueue(arrival(f"t{n}", dead="no such row"))
    met = [letter.id async for some in each_step(spread.namespace, ROWS) for letter in some]
    assert sorted(met) == sorted(f"t{n}" for n in range(20))
    namespace = spread.without(0)
    assert 0 < await count(namespace, ROWS) < 20
    assert [each.partition for each in namespace.away] == [0]
    with pytest.raises(StoreUnavailable):
        await count(spread.without(0, 1, 2, 3), ROWS)
    with pytest.raises(UnknownCursor, match="more partitions"):
        await step(spread.namespace, ROWS, "9.3")
