"""Whose definition counts, where a schedule lies, when it ends; what is made of due ticks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from functools import partial
from time import gmtime, monotonic
from typing import Any

import pytest

from groupflow.core.errors import (
    ConfigError,
    GroupflowError,
    ServerUnreachable,
    StoreFull,
    StoreUnavailable,
)
from groupflow.operate.schedules import Schedules
from groupflow.schedule.deciding import MOST_COUNTED, MOST_MADE, decide, first_due
from groupflow.schedule.definitions import Definition, Loaded, definitions_of
from groupflow.schedule.table import KEPT, ScheduleTable, ScheduleVerb
from groupflow.servers import RedisServer
from groupflow.settings.model import Settings
from groupflow.store.partitions import partition_of
from tests.operate.spread import Spread
from tests.schedule.clockwork import (
    HOUR,
    Clockwork,
    begun,
    defined,
    let_be_old,
    let_pass,
    names,
    rule,
    the,
    waiting,
)  # fmt: skip
from tests.store.bench import Bench


async def test_the_newer_configuration_wins(bench: Bench) -> None:
    """What a reload does not change is as old as it was, else it would bring an old one back."""
    old = await begun(bench, rule(body={"v": 1}), ago=9.0, daemon="old")
    new = await begun(bench, rule(body={"v": 2}), ago=5.0, daemon="new")
    await old.look()
    found = await the(bench)
    assert (found.daemon, found.rival) == ("new", "old")
    let_pass(bench, 1)
    await old.look()
    assert waiting(bench) == []  # it is not its to make
    await new.look()
    task: Any = bench.raw.hvals(bench.keys("tasks"))
    assert [each.endswith(b'\n{"v":2}') for each in task] == [True]
    for version, winner in ((1, "new"), (3, "old")):
        old.load(rule(body={"v": version}), rule("other"))
        await old.look()
        assert (await the(bench)).daemon == winner


async def test_an_older_one_counts_where_nobody_has_the_newer_one(bench: Bench) -> None:
    old = await begun(bench, rule(body={"v": 1}), ago=5.0, daemon="old")
    await begun(bench, rule(body={"v": 2}), daemon="new")
    let_be_old(bench, 61)
    await old.look()
    assert (await the(bench)).daemon == "old"


async def test_a_definition_that_comes_too_late_is_refused(bench: Bench) -> None:
    """As where two daemons were told that a schedule has changed, and the older one is slower."""
    await begun(bench, rule(body={"v": 2}))
    table = ScheduleTable(bench.client, "old")
    older = Loaded(defined(rule(body={"v": 1}))[0], monotonic() - 60.0)
    await table.look()
    assert await table.define(older, bench.server_time() + HOUR) is None


async def test_another_timing_makes_up_one_at_most(bench: Bench) -> None:
    """What is due stays due where only the rest changes."""
    hourly = f"{(gmtime().tm_min - 30) % 60} * * * *"  # half an hour ago, whenever this runs
    clock = await begun(bench, rule(cron=hourly))
    for hours, changed, ticks in (
        (3, rule(cron=hourly, body={"v": 2}, missed="all"), 3),
        (3, rule(cron="*/10 * * * *", missed="all"), 4),
        (0, rule(cron="*/20 * * * *", missed="all"), 4),  # nothing was due any more
    ):
        let_pass(bench, hours)
        clock.load(changed)
        await clock.look()
        assert (await the(bench)).ticks_total == ticks


async def test_it_ends_where_nobody_has_it_for_long(bench: Bench) -> None:
    clock = await begun(bench, rule("kept"), rule("gone"))
    clock.load(rule("kept"))
    table = ScheduleTable(bench.client, "d1")
    for older, may_end, gone in ((KEPT - 10, True, []), (20, False, []), (0, True, ["gone"])):
        let_be_old(bench, older, "gone")
        _, ended = await table.present([], may_end=may_end)
        assert ended == gone
        assert gone or (await the(bench, "gone")).is_nobodys
    assert await names(bench) == ["kept"]


@pytest.mark.parametrize(
    "wrong",
    [
        rule(app="crm"),  # its group needs a tenant
        rule(app="crm", tenant=1, body={"app_name": "other", "kind": "x"}),
        rule(body={"app_name": {"a": 1}}),
        rule(body={"text": "x" * 17_000_000}),
        rule(body={"number": 10**20}),
        rule(app="crm", tenant=10**20),
        rule(body={"half of a character": "\ud800"}),
    ],
)
def test_what_can_not_be_routed_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"schedules\[0\] = nightly: Its ticks can't be routed"):
        defined(wrong)


@pytest.mark.parametrize(("type_", "is_refused"), [("t", True), ("other", False)])
def test_what_would_drain_its_own_drain_is_refused(type_: str, is_refused: bool) -> None:
    groups = [{"name": "crm", "app": "crm", "key": "{kind}", "on_drained": type_}]
    ticks = [rule(app="crm", body={"kind": "k"}), rule(name="plain")]
    settings = Settings.model_validate({"groups": groups, "schedules": ticks})
    with pytest.raises(ConfigError, match="one more 't'") if is_refused else nullcontext():
        definitions_of(settings)


@pytest.fixture
async def benches(redis_server: RedisServer) -> AsyncIterator[list[Bench]]:
    """Two partitions: a schedule lies where its ticks' group lies."""
    async with Spread(redis_server.url, 2) as spread:
        yield spread.benches
        assert [each.audit() for each in spread.benches] == [[], []]


def grouped(place: int, **facts: Any) -> dict[str, Any]:
    """One whose group lies in that partition."""
    kind = next(f"k{n}" for n in range(99) if partition_of(f"k{n}:1", "", 2) == place)
    return rule(app="crm", tenant=1, body={"kind": kind}, **facts)


async def test_with_another_group_it_goes_elsewhere_and_ticks_once(benches: list[Bench]) -> None:
    old, new = Clockwork(*benches, daemon="old"), Clockwork(*benches, daemon="new")
    old.load(grouped(0))
    await old.look()
    let_pass(benches[0], 100)
    await old.look()
    new.load(grouped(1))
    await new.look()
    assert await names(benches[0]) == []
    found = await the(benches[1])
    assert (found.ticks_total, len(found.runs)) == (1, 1)
    await old.look()
    assert await names(benches[0]) == []
    assert len(waiting(benches[0])) == 1
    assert (await the(benches[1])).daemon == "new"
    new.load(grouped(0))  # it comes back
    await new.look()
    found = await the(benches[0])
    assert (found.ticks_total, len(found.runs), found.daemon) == (1, 1, "new")


async def test_one_that_comes_back_is_as_paused_as_it_was_elsewhere(benches: list[Bench]) -> None:
    clock, schedules = Clockwork(*benches), [Schedules(each.namespace) for each in benches]
    for place, is_paused in ((0, False), (1, True), (0, False)):
        clock.load(grouped(place))
        await clock.look()
        assert (await the(benches[place])).paused == is_paused
        turn = partial(schedules[place].pause, by="anna")
        assert await (schedules[place].resume if is_paused else turn)("nightly")


async def test_one_that_nearly_went_elsewhere_stays_as_it_is(benches: list[Bench]) -> None:
    """What lies there is of the time before."""
    clock = Clockwork(*benches)
    for place in (1, 0):
        clock.load(grouped(place))
        await clock.look()
    for bench in benches:
        let_pass(bench, 1)
    await clock.look()
    await Schedules(benches[0].namespace).pause("nightly", "anna")
    table = ScheduleTable(benches[0].client, "d1")
    await table.look()
    assert (await table.retire(Loaded(defined(grouped(1))[0], monotonic()))).is_ours
    clock.load(grouped(0, missed="all"))
    await clock.look()
    found = await the(benches[0])
    assert (found.paused_by, found.ticks_total) == ("anna", 1)


async def test_two_that_begin_at_once_do_not_both_make_it(benches: list[Bench]) -> None:
    """Each gives it up in the other's partition before it begins in its own."""
    first, second = (Loaded(defined(grouped(n))[0], monotonic()) for n in (0, 1))
    tables = [ScheduleTable(bench.client, "x") for bench in benches]
    for table in tables:
        await table.look()
    assert (await tables[1].retire(first)).is_ours
    assert (await tables[0].retire(second)).is_ours
    now = benches[0].server_time()
    assert await tables[0].define(first, now + 10**9) is None
    assert await tables[1].define(second, now + 10**9) == now + 10**9


REFUSALS = [
    StoreUnavailable("it is away"),
    StoreFull("it has no memory"),
    ServerUnreachable("Redis", "there", "it refused the credentials"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
async def test_one_that_can_not_begin_stops_none(
    benches: list[Bench], monkeypatch: Any, error: GroupflowError
) -> None:
    """To begin, all partitions have to take it; to go on, its own alone."""
    clock, asked = Clockwork(*benches), list[object]()
    clock.load(grouped(0, name="old"))
    await clock.look()
    clock.load(*(grouped(0, name=name) for name in ("new", "newer", "old")))
    let_pass(benches[0], 1, "old")

    async def refuse(verb: object, *_: object) -> object:
        asked.append(verb)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(benches[1].client, "run", refuse)
        with pytest.raises(type(error)):  # of the partition that refuses
            await clock.look()
    assert asked.count(ScheduleVerb.RETIRE) == 1, "each waits for what hangs"
    assert (await the(benches[0], "old")).ticks_total == 1
    assert set(await names(benches[0])) == {"old"}
    await clock.look()
    assert set(await names(benches[0])) == {"old", "new", "newer"}


# What is made of ticks that are due, by how late they are looked at


SECOND = 1_000_000
MIDNIGHT = 1_790_000_000_000_000 // (24 * HOUR) * 24 * HOUR


def hourly(**facts: Any) -> Definition:
    (found,) = defined(rule(**facts))
    return found


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
@pytest.mark.parametrize("late", [0, 1, 60 * SECOND])
def test_one_that_is_due_is_made_whatever_the_policy(missed: str, late: int) -> None:
    found = decide(hourly(missed=missed, catch_up=0), MIDNIGHT, MIDNIGHT + late)
    assert (found.make, found.missed) == ([MIDNIGHT], 0)
    assert (found.until, found.next_at) == (MIDNIGHT, MIDNIGHT + HOUR)


@pytest.mark.parametrize(
    ("facts", "made"),
    [
        ({"missed": "once"}, [6]),
        ({"missed": "skip"}, []),
        ({"missed": "all"}, [0, 1, 2, 3, 4, 5, 6]),
        ({"missed": "all", "catch_up": 60}, []),
    ],
)
def test_after_six_hours_away(facts: dict[str, Any], made: list[int]) -> None:
    now = MIDNIGHT + 6 * HOUR + 1800 * SECOND
    found = decide(hourly(**facts), MIDNIGHT, now)
    assert found.make == [MIDNIGHT + n * HOUR for n in made]
    assert (found.missed, found.next_at) == (7, MIDNIGHT + 7 * HOUR)


def test_catch_up_bounds_how_far_all_goes_back() -> None:
    now = MIDNIGHT + 6 * HOUR + SECOND
    found = decide(hourly(missed="all", catch_up=2 * 3600 + 2), MIDNIGHT, now)
    assert found.make == [MIDNIGHT + n * HOUR for n in (4, 5, 6)]
    assert found.missed == 6


def test_all_of_many_are_made_some_at_a_time() -> None:
    definition = hourly(every=1.0, missed="all")
    due, now, made, missed = MIDNIGHT, MIDNIGHT + 1000 * SECOND, 0, 0
    while due <= now:
        found = decide(definition, due, now)
        assert found.make[0] == due
        assert len(found.make) <= MOST_MADE
        made, missed, due = made + len(found.make), missed + found.missed, found.next_at
    assert (made, missed) == (1001, 940)  # the last minute is on time
    assert due == now + SECOND


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
def test_an_endless_absence_is_counted_in_bounded_time(missed: str) -> None:
    now = MIDNIGHT + 3 * MOST_COUNTED * SECOND
    found = decide(hourly(every=1.0, missed=missed, catch_up=10), MIDNIGHT, now)
    assert MOST_COUNTED <= found.missed <= MOST_COUNTED + 1
    assert found.make[-1] == now  # the last one is on time
    assert found.next_at == now + SECOND


def test_what_is_due_need_not_be_a_time_of_the_definition() -> None:
    """As when the time zone's rules have changed since."""
    found = decide(hourly(), MIDNIGHT + 7, MIDNIGHT + 8)
    assert (found.make, found.next_at) == ([MIDNIGHT + 7], MIDNIGHT + HOUR)


MINUTE, DAY = 60 * SECOND, 24 * HOUR


@pytest.mark.parametrize(
    ("facts", "now", "was", "first"),
    [
        ({}, SECOND, (), HOUR),  # a new one waits for its time
        # It was due at midnight, and a long restart made that minute 1 of each hour.
        ({"cron": "1 * * * *", "missed": "all"}, 3 * HOUR, (0, -HOUR), 2 * HOUR + MINUTE),
        ({"cron": "1 * * * *", "missed": "skip"}, 3 * HOUR, (0, -HOUR), 3 * HOUR + MINUTE),
        # Nothing was due, so none is made up; nor twice what a clock that went back has made.
        ({"cron": "*/5 * * * *"}, 1801 * SECOND, (DAY, 0), 2100 * SECOND),
        ({}, -SECOND, (-MIDNIGHT, 0), HOUR),
    ],
)
def test_when_one_that_begins_or_has_another_timing_is_due(
    facts: dict[str, Any], now: int, was: tuple[int, ...], first: int
) -> None:
    found = first_due(hourly(**facts), MIDNIGHT + now, *(MIDNIGHT + each for each in was))
    assert found == MIDNIGHT + first
