"""What waits for delays and what dead letters hold is counted to the byte; bodies leave when told.

The auditor compares the counters with the lives at the end of each of these tests too.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from groupflow.core.errors import LetterArchived, NoRoomForDelay
from groupflow.core.places import Place
from groupflow.operate.archiving import archive, beside_of, oldest_bodies
from groupflow.operate.dead import DeadLetters, remove_expired
from groupflow.operate.groups import Groups
from groupflow.operate.tasks import Tasks, find_task
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope, Pool
from groupflow.store.scripts import Verb
from groupflow.store.sessions import Session
from groupflow.store.settlements import Retry
from tests.history.held_bytes import DELAY_COSTS
from tests.store.bench import Bench, arrival, bury, ids

YEAR = 31_536_000.0
KILO = 1000
ME = Session("d1")  # who archives
LATE = KILO + DELAY_COSTS  # what such a message counts that waits for a delay


def large(id_: str, group: str | None = None, size: int = KILO, **facts: object) -> Arrival:
    """A message whose envelope has so many bytes."""
    made = arrival(id_, group, **facts)
    head = replace(made.envelope, body=b"").pack()
    return replace(made, envelope=replace(made.envelope, body=b"x" * (size - len(head))))


def held_by(bench: Bench, id_: str) -> int:
    """What a dead letter counts; the auditor compares it with what it has."""
    noted: Any = bench.raw.hget(bench.keys("task_state", id_), "dead_bytes")
    return int(noted or 0)


class TestDelayed:
    @pytest.mark.parametrize("aside", [True, False])
    @pytest.mark.parametrize("group", ["g", None])
    async def test_a_delay_counts_until_it_is_over(
        self, bench: Bench, group: str | None, aside: bool
    ) -> None:
        messages = [large(f"t{n}", group, delay=YEAR, steps_aside=aside) for n in range(3)]
        assert await bench.enqueue(*messages) == [True] * 3
        assert await bench.enqueue(*messages) == [False] * 3
        assert bench.count("delayed_bytes") == 3 * LATE
        tasks = Tasks(bench.namespace)
        assert await tasks.drop("t1") is None
        assert bench.count("delayed_bytes") == 2 * LATE
        assert await tasks.run_now("t0") is None
        assert await tasks.run_now("t2") is None
        assert bench.count("delayed_bytes") == 0

    @pytest.mark.parametrize("group", ["g", None])
    async def test_promoted_and_claimed_ones_count_no_more(
        self, bench: Bench, group: str | None
    ) -> None:
        pool: Pool = "grouped" if group else "plain"
        await bench.enqueue(large("t", group, delay=0.001), large("u", group, delay=0.001))
        daemon = await bench.daemon()
        ran: list[str] = []
        while len(ran) < 2:
            await bench.client.run(Verb.PROMOTE, 100)
            for claim in await daemon.claim(pool, "w1"):
                ran.append(claim.task.id)
                await daemon.complete(claim)
        assert bench.count("delayed_bytes") == 0

    async def test_a_promoted_one_counts_no_more(self, bench: Bench) -> None:
        await bench.enqueue(large("t", delay=0.001))
        while not (await bench.client.run(Verb.PROMOTE, 100))[0]:
            pass
        assert bench.count("delayed_bytes") == 0

    async def test_a_retry_does_not_count(self, bench: Bench) -> None:
        """It waits for our delay, not for its message's."""
        await bench.enqueue(large("t", "g"))
        daemon = await bench.daemon()
        await daemon.settle(Retry(await daemon.claim_one(), YEAR, [{"message": "x"}]))
        assert bench.count("delayed_bytes") == 0

    async def test_what_comes_behind_a_delay_in_its_lane_waits_for_it_too(
        self, bench: Bench
    ) -> None:
        """Or one small delayed message could hold any number of large ones for a year."""
        await bench.enqueue(large("first", "g"), large("late", "g", delay=YEAR))
        await bench.enqueue(large("behind", "g"), large("further", "g"), large("other", "h"))
        assert bench.count("delayed_bytes") == 3 * LATE
        daemon = await bench.daemon()
        claims = await daemon.claim("grouped", "w1", "w2", "w3")
        assert sorted(ids(claims)) == ["first", "other"]
        await daemon.complete(*claims)
        assert await Tasks(bench.namespace).drop("late") is None
        assert await daemon.work_off(["w1"]) == ["behind", "further"]
        assert bench.count("delayed_bytes") == 0

    @pytest.mark.parametrize("paused", [True, False])
    async def test_a_delay_that_is_over_delays_no_task(self, bench: Bench, paused: bool) -> None:
        """Be its group busy or paused: it waits for that, and not for a delay any more."""
        daemon = await bench.daemon()
        await bench.enqueue(large("first", "g"))
        claims = [] if paused else [await daemon.claim_one()]
        if paused:
            await Groups(bench.namespace).pause("g", "me")
        await bench.enqueue(large("late", "g", delay=0.05), large("behind", "g"))  # at one moment
        assert bench.count("delayed_bytes") == 2 * LATE
        over = time.monotonic() + 0.1
        while time.monotonic() < over:
            pass
        done = await bench.enqueuer.enqueue([large(f"t{n}", "g") for n in range(3)], 0)
        assert not done.crowded_out
        assert bench.count("delayed_bytes") == 2 * LATE
        for _ in range(2):
            assert (await bench.client.run(Verb.PROMOTE, 1))[0] == 0
        assert bench.count("delayed_bytes") == 0
        await daemon.complete(*claims)
        if paused:
            await Groups(bench.namespace).resume("g")
        rest = ["late", "behind", "t0", "t1", "t2"]
        assert await daemon.work_off(["w1"]) == (["first", *rest] if paused else rest)
        bench.events.clear()  # some were taken in by the side door

    async def test_a_delay_that_is_over_and_not_promoted_yet_delays_no_task(
        self, bench: Bench
    ) -> None:
        await bench.enqueue(large("late", "g", delay=0.001))
        over = bench.server_time() + 2_000
        while bench.server_time() < over:
            pass
        await bench.enqueue(large("behind", "g"))
        assert bench.count("delayed_bytes") == LATE
        await bench.client.run(Verb.PROMOTE, 100)
        assert bench.count("delayed_bytes") == 0

    async def test_what_comes_behind_a_retry_does_not_count(self, bench: Bench) -> None:
        """It waits for our delay too, where elsewhere a message's own one counts."""
        await bench.enqueue(large("t", "g"), large("late", "h", delay=YEAR))
        daemon = await bench.daemon()
        await daemon.settle(Retry(await daemon.claim_one(), YEAR, [{"message": "x"}]))
        await bench.enqueue(large("behind", "g"))
        assert bench.count("delayed_bytes") == LATE

    async def test_each_waits_for_the_longest_delay_that_holds_it(self, bench: Bench) -> None:
        """Its own, or that of one in front of it; only its own where it stands aside."""
        delays = {"late": YEAR / 2, "shorter": YEAR / 4, "longer": YEAR, "behind": 0.0}
        await bench.enqueue(*(large(id_, "g", delay=delay) for id_, delay in delays.items()))
        await bench.enqueue(large("aside", "g", delay=YEAR / 4, steps_aside=True))
        rows: Any = bench.raw.zrange(bench.keys("late"), 0, -1, withscores=True)
        last = {id_.decode(): until for id_, until in rows}
        assert last["shorter"] == last["late"] < last["longer"] == last["behind"]
        assert last["aside"] < last["late"]

    async def test_a_letter_from_the_door_waits_for_no_delay(self, bench: Bench) -> None:
        """It keeps its reason, where there is no room for it either."""
        letter = large("own", "g", delay=YEAR, dead="no type")
        behind = large("behind", "g", dead="no type")
        done = await bench.enqueuer.enqueue([large("late", "g", delay=YEAR), letter, behind], LATE)
        assert done.crowded_out == frozenset()
        for id_ in ("own", "behind"):
            assert bench.raw.hget(bench.keys("task_state", id_), "reason") == b"no type"
        bench.events.clear()

    @pytest.mark.parametrize("verb", ["drop", "run_now"])
    async def test_a_delay_ended_by_an_operator_delays_no_task(
        self, bench: Bench, verb: str
    ) -> None:
        daemon = await bench.daemon()
        await bench.enqueue(large("first", "g"))
        running = await daemon.claim_one()
        await bench.enqueue(large("late", "g", delay=YEAR), large("behind", "g"))
        await bench.enqueue(large("later", "g", delay=YEAR / 2))
        assert await getattr(Tasks(bench.namespace), verb)("late") is None
        assert bench.count("delayed_bytes") == 2 * LATE
        await bench.enqueue(large("held", "g"))
        assert bench.count("delayed_bytes") == 3 * LATE, "it waits for the other delay"
        assert bench.audit() == []
        assert await getattr(Tasks(bench.namespace), verb)("later") is None
        await bench.enqueue(large("free", "g"))
        assert bench.count("delayed_bytes") == 2 * LATE
        await daemon.complete(running)
        await daemon.work_off(["w1"])
        assert bench.count("delayed_bytes") == 0

    @pytest.mark.parametrize("aside", [True, False])
    async def test_what_waits_for_delays_pauses_no_intake(self, bench: Bench, aside: bool) -> None:
        """Its bytes are bounded; its number would count towards `redis.max_waiting` for a year."""
        late = [large(f"t{n}", "g", delay=YEAR, steps_aside=aside) for n in range(3)]
        assert (await bench.take_in(*late, large("u"), large("v", "h"))).queued == 2

    async def test_small_delayed_tasks_count_what_they_take(self, bench: Bench) -> None:
        tasks = [arrival(f"t{n:06}", "g", delay=YEAR, steps_aside=True) for n in range(2000)]
        before = bench.used_memory()
        for n in range(0, 2000, 200):
            await bench.enqueue(*tasks[n : n + 200])
        taken = bench.used_memory() - before
        assert taken / 2 < bench.count("delayed_bytes") < taken * 2

    @pytest.mark.parametrize("aside", [True, False])
    @pytest.mark.parametrize("group", ["g", None])
    async def test_beyond_the_bound_it_is_a_dead_letter_that_keeps_its_delay(
        self, bench: Bench, group: str | None, aside: bool
    ) -> None:
        messages = [large(f"t{n}", group, delay=YEAR, steps_aside=aside) for n in range(3)]
        done = await bench.enqueuer.enqueue([*messages, large("now", "h")], 2 * LATE)
        assert (done.taken, done.crowded_out) == ([True] * 4, frozenset({2}))
        assert bench.count("delayed_bytes") == 2 * LATE
        letters = DeadLetters(bench.namespace)
        letter = await letters.find("t2")
        assert letter is not None
        assert "redis.delayed_memory" in letter.reason
        assert (letter.type, letter.group, letter.tenant) == ("t", group, "42")
        assert (letter.attempts, letter.died_at_the_door) == (0, False)
        before = bench.dump()
        refusal = ""
        try:
            await letters.redrive(letter, delayed_memory=3 * LATE - 1)
        except NoRoomForDelay as error:
            refusal = str(error)
        assert "redis.delayed_memory" in refusal
        assert bench.dump() == before
        await Tasks(bench.namespace).drop("t0")
        await Tasks(bench.namespace).drop("t1")
        assert await letters.redrive(letter)
        assert not await letters.redrive(letter)
        assert bench.count("delayed_bytes") == LATE
        told = await find_task(bench.client, "t2")
        assert told is not None
        assert told.state == "delayed"
        assert told.until is not None
        stands_aside = bench.raw.zcard(bench.keys("delayed"))
        assert stands_aside == (aside or group is None), "as its message said"
        daemon = await bench.daemon()
        assert await daemon.work_off() == ["now"]
        assert await Tasks(bench.namespace).run_now("t2") is None
        assert "t2" in await daemon.work_off()
        bench.events.clear()  # it was taken in by the side door, unknown to the history

    async def test_what_is_crowded_out_behind_a_delay_is_known_without_its_body(
        self, bench: Bench
    ) -> None:
        await bench.enqueuer.enqueue(
            [large("late", "g", delay=YEAR), large("behind", "g")], 2 * LATE - 1
        )
        letter = await DeadLetters(bench.namespace).find("behind")
        assert letter is not None
        assert (letter.type, letter.group, letter.tenant) == ("t", "g", "42")
        task_state: Any = bench.raw.hgetall(bench.keys("task_state", "behind"))
        assert {b"type": b"t", b"tenant": b"42"}.items() <= task_state.items()
        assert bench.audit() == []
        bench.events.clear()  # it was taken in by the side door, as above

    async def test_what_is_crowded_out_and_too_large_to_be_read_is_known_too(
        self, bench: Bench
    ) -> None:
        await bench.enqueuer.enqueue([large("t", "g", 70 * KILO, delay=YEAR)], 0)
        letter = await DeadLetters(bench.namespace).find("t")
        assert letter is not None
        assert (letter.type, letter.group, letter.tenant) == ("t", "g", "42")
        bench.events.clear()

    async def test_whose_delay_is_over_runs_at_once(self, bench: Bench) -> None:
        await bench.enqueuer.enqueue([large("t", "g", delay=0.001)], 0)
        letters = DeadLetters(bench.namespace)
        letter = await letters.find("t")
        assert letter is not None
        over = letter.died_at + 0.002
        while (await bench.client.info("server"))["server_time_usec"] / 1e6 < over:
            pass
        assert await letters.redrive(letter)
        assert bench.count("delayed_bytes") == 0
        bench.events.clear()


class TestDead:
    async def test_letters_count_until_they_end(self, bench: Bench) -> None:
        await bench.enqueue(large("door", dead="no tenant"), large("t", "g"), large("u", "h"))
        daemon = await bench.daemon()
        await daemon.settle(*(bury(claim) for claim in await daemon.claim("grouped", "w1", "w2")))
        held = sum(held_by(bench, id_) for id_ in ("door", "t", "u"))
        assert bench.count("dead_bytes") == held > 3 * KILO
        letters = DeadLetters(bench.namespace)
        door, t, u = [await letters.find(id_) for id_ in ("door", "t", "u")]
        assert door
        assert t
        assert u
        assert await letters.drop(t)
        assert await letters.redrive(u)
        assert bench.count("dead_bytes") == held_by(bench, "door")
        await remove_expired(bench.client, -1.0, 10)
        assert bench.count("dead_bytes") == 0

    async def test_the_oldest_beyond_the_bound_are_told(self, bench: Bench) -> None:
        for n in range(5):
            await bench.enqueue(large(f"t{n}", dead="no"))
        await bench.enqueue(arrival("small", dead="no"))
        one, small = held_by(bench, "t0"), held_by(bench, "small")

        async def told(bound: int, most: int = 100, most_bytes: int = 10**6) -> list[str]:
            bodies = await oldest_bodies(bench.client, ME, bound, most=most, most_bytes=most_bytes)
            return [body.id for body in bodies]

        assert await told(5 * one + small) == []
        assert await told(5 * one + small - 1) == ["t0"]
        assert await told(2 * one + small) == ["t0", "t1", "t2"]
        assert await told(0) == ["t0", "t1", "t2", "t3", "t4", "small"]
        assert await told(0, most=2) == ["t0", "t1"]
        assert await told(0, most_bytes=10) == ["t0"]
        assert await told(0, most_bytes=3 * KILO + 500) == ["t0", "t1", "t2"]

    async def test_a_body_leaves_once_and_comes_back_by_a_redrive(self, bench: Bench) -> None:
        message = large("t", "g")
        await bench.enqueue(message)
        daemon = await bench.daemon()
        await daemon.settle(bury(await daemon.claim_one()))
        (body,) = await oldest_bodies(bench.client, ME, 0, most=10, most_bytes=10)
        assert Envelope.unpack(body.packed) == message.envelope
        assert await archive(bench.client, [body], [Place(7, "m7")]) == 1
        assert await archive(bench.client, [body], [Place(8, "m8")]) == 0
        assert (bench.count("dead_bytes"), bench.count("archived")) == (0, 1)
        assert await oldest_bodies(bench.client, ME, 0, most=10, most_bytes=10) == []

        letters = DeadLetters(bench.namespace)
        letter = await letters.find("t")
        assert letter is not None
        assert (letter.type, letter.group, letter.reason) == ("t", "g", "broken")
        rest, place = await letters.envelope("t")
        assert (rest.body, place) == (b"", Place(7, "m7"))
        before = bench.dump()
        refusal = ""
        try:
            await letters.redrive(letter)
        except LetterArchived as error:
            refusal = str(error)
        assert "RabbitMQ" in refusal
        assert bench.dump() == before
        beside, back = beside_of(body.packed), Envelope.unpack(body.packed)
        assert await letters.redrive(letter, back, place=place, beside=beside)
        again = await daemon.claim_one()
        assert again.task.body == message.envelope.body
        await daemon.settle(bury(again))
        assert bench.count("dead_bytes") == held_by(bench, "t") > KILO
        bench.events.clear()  # a redriven task starts once more, which the history can't know

    async def test_another_death_is_not_this_one(self, bench: Bench) -> None:
        """What was read of a letter that was redriven since, and died again, removes nothing."""
        await bench.enqueue(large("t", "g"))
        daemon = await bench.daemon()
        letters = DeadLetters(bench.namespace)
        await daemon.settle(bury(await daemon.claim_one()))
        (body,) = await oldest_bodies(bench.client, ME, 0, most=1, most_bytes=1)
        letter = await letters.find("t")
        assert letter is not None
        await letters.redrive(letter)
        assert await archive(bench.client, [body], [Place(1, "m")]) == 0
        await daemon.settle(bury(await daemon.claim_one()))
        assert await archive(bench.client, [body], [Place(1, "m")]) == 0
        assert (await letters.envelope("t"))[1] is None
        bench.events.clear()  # as above

    async def test_an_archived_letter_is_dropped_and_swept_like_others(self, bench: Bench) -> None:
        await bench.enqueue(large("t", dead="no"), large("u", dead="no"))
        bodies = await oldest_bodies(bench.client, ME, 0, most=10, most_bytes=10**6)
        assert await archive(bench.client, bodies, [Place(n, f"m{n}") for n in range(2)]) == 2
        letters = DeadLetters(bench.namespace)
        letter = await letters.find("t")
        assert letter is not None
        assert await letters.drop(letter)
        assert await remove_expired(bench.client, -1.0, 10) == ["u"]
        assert await archive(bench.client, bodies, [Place(n, f"m{n}") for n in range(2)]) == 0

    async def test_it_leaves_when_redis_is_full(self, bench: Bench) -> None:
        """That is what it is for."""
        await bench.enqueue(large("t", size=100_000, dead="no"))
        (body,) = await oldest_bodies(bench.client, ME, 0, most=1, most_bytes=1)
        bench.raw.config_set("maxmemory", 1)
        try:
            assert await oldest_bodies(bench.client, ME, 0, most=1, most_bytes=1) == [body]
            assert await archive(bench.client, [body], [Place(1, "m")]) == 1
        finally:
            bench.raw.config_set("maxmemory", 0)

    async def test_headers_leave_with_the_body(self, bench: Bench) -> None:
        envelope = Envelope("t", None, None, None, {"x": "y" * KILO}, b"z" * KILO)
        await bench.enqueue(Arrival("t", envelope, dead="no"))
        (body,) = await oldest_bodies(bench.client, ME, 0, most=1, most_bytes=1)
        await archive(bench.client, [body], [Place(1, "m")])
        left: object = bench.raw.hget(bench.keys("tasks"), "t")
        assert left == replace(envelope, headers={}, body=b"").pack()
