"""How a batch goes through several entrances: each task by its own, and what went in stays so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from groupflow.core.errors import StoreUnavailable
from groupflow.core.events import Following
from groupflow.core.measures import IntakeMeasures
from groupflow.core.routing import scope_of
from groupflow.flow.admission import Admission
from groupflow.flow.backpressure import Backpressure
from groupflow.flow.entrance import Entrance, PartitionEntrance
from groupflow.flow.intakes import Intakes
from groupflow.operate.namespace import Namespace
from groupflow.operate.tasks import end_cancelled
from groupflow.servers import RedisServer
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule
from groupflow.store.client import StoreClient
from groupflow.store.enqueue import CARRIED, Arrival, Enqueuer
from groupflow.store.envelope import Pool
from tests.operate.spread import Spread
from tests.store.bench import arrival

GATES = 4
ARRIVALS = [
    *(arrival(f"a{n}", "g:1") for n in range(3)),
    *(arrival(f"p{n}") for n in range(5)),
    *(arrival(f"b{n}", f"h:{n}") for n in range(5)),
    arrival("known", "g:1"),
    arrival("foreign"),
    arrival("crowded", "h:1", delay=3600.0),
    arrival("full", "h:1", max_queued=1),
]


@pytest.fixture
async def spread(redis_server: RedisServer) -> AsyncIterator[Spread]:
    async with Spread(redis_server.url, GATES) as spread:
        yield spread
        assert [bench.audit() for bench in spread.benches] == [[]] * GATES


def limits(client: StoreClient, **some: Any) -> Backpressure:
    usual: Any = {"max_waiting": 100, "max_memory": 0, "delayed_memory": 10**6}
    return Backpressure(client, **usual | some)


def entrances(namespace: Namespace, **some: Any) -> list[PartitionEntrance]:
    clients = namespace.clients
    return [PartitionEntrance(Enqueuer(each), limits(each, **some)) for each in clients]


async def test_each_goes_where_its_group_lies_in_order(spread: Spread) -> None:
    foreign = arrival("foreign")
    theirs = replace(foreign.envelope, tenant="7", scope=scope_of(None, "7"))
    await spread.enqueue(arrival("known", "g:1"), replace(foreign, envelope=theirs))
    gates = entrances(spread.namespace, delayed_memory=1)
    enqueued = await Entrance(gates).batch(ARRIVALS).write()
    assert [n for n, is_new in enumerate(enqueued.taken) if not is_new] == [13]
    assert enqueued.renamed.keys() == {14}
    assert [*enqueued.crowded_out, *enqueued.full] == [15, 16]
    assert enqueued.queued == 16
    for each in ARRIVALS:
        home = spread.benches[spread.place_of(each.envelope.group, each.id)]
        assert home.raw.hexists(home.keys("tasks"), each.id)
    assert all(bench.count("taken") for bench in spread.benches), "the test shows little"
    assert spread.benches[spread.place_of("g:1")].lane("g:1") == ["known", "a0", "a1", "a2"]


async def test_what_is_through_is_not_written_again(spread: Spread) -> None:
    """However long another partition is away: the window for duplicates ends some time."""
    away = spread.place_of("g:1")
    gates = entrances(spread.without(away))
    batch = Entrance(gates).batch(ARRIVALS[:13])
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await batch.write()
    assert [bench.count("taken") > 0 for bench in spread.benches] == [
        number != away for number in range(GATES)
    ]
    gates[away].enqueuer = Enqueuer(spread.benches[away].client)
    assert all((await batch.write()).taken), "what is written again is known"


async def test_each_script_of_a_batch_has_a_claim_behind_it(spread: Spread) -> None:
    """What one in front of it made is all that an earlier claim finds."""
    [gate, *_], found = entrances(spread.namespace), list[tuple[set[Pool], int]]()
    gate.wake = lambda pools: found.append((set(pools), gate.enqueuer._seen.sequence))
    large = [arrival("a"), arrival("b", "g:1"), arrival("c")]
    for each in large:
        each.envelope.body = b"x" * (CARRIED // 2)
    await gate.enqueue(large)
    assert [pools for pools, _ in found] == [{"plain"}, {"grouped"}, {"plain"}]
    assert len({newest for _, newest in found}) == len(large)


async def test_a_message_cancels_what_came_before_it(spread: Spread) -> None:
    """Wherever that lies, and not what comes behind it under that id."""

    def cancel(id_: str) -> Arrival:
        return replace(arrival(f"cancels {id_}"), cancels=id_)

    gates, ended = entrances(spread.namespace), list[tuple[int, str, str]]()

    def note(number: int, id_: str, group: str) -> None:
        ended.append((number, id_, group))

    for number, gate in enumerate(gates):
        gate.end_waiting = partial(note, number)
    sent = [*ARRIVALS[:3], cancel("a1"), cancel("later"), arrival("later", "g:1"), *ARRIVALS[3:5]]
    batch = Entrance(gates).batch([*sent, cancel("p0"), cancel("never")])
    away = (spread.place_of("g:1") + 1) % GATES
    gates[away].enqueuer, enqueuer = (
        Enqueuer(spread.without(away).clients[away]),
        gates[away].enqueuer,
    )
    with pytest.raises(StoreUnavailable):
        await batch.write()
    gates[away].enqueuer = enqueuer
    enqueued = await batch.write()
    assert enqueued.cancels == {3: "requested", 4: "unknown", 8: "requested", 9: "unknown"}
    assert all(enqueued.taken), "what was written is not written again"
    home = spread.place_of("g:1")
    assert {*ended} == {(home, "a1", "g:1"), (spread.place_of(None, "p0"), "p0", "")}
    for number, id_, group in {*ended}:
        assert await end_cancelled(spread.benches[number].client, id_, group)
    assert spread.benches[home].lane("g:1") == ["a0", "a2", "later"]


async def test_who_works_there_is_woken_for_what_comes(spread: Spread) -> None:
    gates, woken = entrances(spread.namespace), list[tuple[int, Any]]()
    for number, gate in enumerate(gates):
        gate.wake = lambda pools, number=number: woken.append((number, pools))  # type: ignore[misc]
    await Entrance(gates).batch([arrival("p0")]).write()
    assert woken == [(spread.place_of(None, "p0"), {"plain"})]


async def test_all_are_asked_and_one_limit_is_enough(spread: Spread) -> None:
    await spread.enqueue(*ARRIVALS[:8])
    gates = entrances(spread.namespace)
    entrance = Entrance(gates)
    assert (await entrance.batch([]).write()).queued == 8
    assert await entrance.reason(7) == ""
    gates[2].backpressure = limits(spread.benches[2].client, max_waiting=7, delayed_memory=50)
    assert "redis.max_waiting" in await entrance.reason(7)
    assert (entrance.kind, entrance.delayed_memory) == ("waiting", 50)


def intakes_of(gates: list[PartitionEntrance], measures: IntakeMeasures) -> Intakes:
    """Intakes that bring follow-up tasks in by these, grouped by ``g``."""
    settings = Settings(groups=(GroupRule(key="{g}"),))
    unused: Any = dict.fromkeys(("tracing", "on_pause", "count_daemons", "retell"), print)
    facts = (settings, "test", Admission.of(settings), Entrance(gates))
    return Intakes(*facts, measures=measures, **unused)


async def test_follow_up_tasks_say_which_are_made_while_a_partition_is_away(spread: Spread) -> None:
    """These are not brought in again. They are no messages, and aren't counted as such."""
    names = [f"h{number}" for number in range(5)]
    following = [(name, Following("t", f'{{"g":"{name}"}}', {})) for name in names]
    place = {name: spread.place_of(name) for name in names}
    away, made, measures = place["h0"], dict[str, bool](), IntakeMeasures()
    here = {name: True for name in names if place[name] != away}
    assert here, "the test shows nothing"
    with pytest.raises(StoreUnavailable):
        await intakes_of(entrances(spread.without(away)), measures).follow(following, made)
    assert made == here
    await intakes_of(entrances(spread.namespace), measures).follow(following, made)
    assert made == {name: name not in here for name in names}
    assert (measures.messages, measures.enqueued, measures.duplicates) == (0, 0, 0)


async def test_follow_up_tasks_that_are_dead_at_once_are_counted(spread: Spread) -> None:
    """Once, also where they come again; nothing else of them is."""
    following = [(id_, Following("t", body, {})) for id_, body in (("a", "{}"), ("b", '{"g":1}'))]
    measures = IntakeMeasures()
    for _ in range(2):
        await intakes_of(entrances(spread.namespace), measures).follow(following, {})
    assert (measures.buried, measures.enqueued, measures.batches.sum) == (1, 0, 0)


async def test_follow_up_tasks_come_into_full_memory(spread: Spread) -> None:
    """They take the place of what waits to be told; a large one too."""
    text = "x" * CARRIED
    bodies = {"small": '{"g":"g"}', "large": f'{{"g":"g","text":"{text}"}}'}
    following = [(name, Following("t", body, {})) for name, body in bodies.items()]
    made = dict[str, bool]()
    intakes = intakes_of(entrances(spread.namespace), IntakeMeasures())
    with spread.benches[0].full():
        for each in following:
            await intakes.follow([each], made)
    assert made == dict.fromkeys(bodies, True)
