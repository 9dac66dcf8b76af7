"""What the store's Python makes of calls, answers, and of what lies in Redis."""

from __future__ import annotations

import re

import pytest

from groupflow.core.task import Task
from groupflow.operate.scripts import OperatorVerb
from groupflow.schedule.table import ScheduleVerb
from groupflow.store import enqueue, settlements
from groupflow.store.enqueue import bound_of_delays
from groupflow.store.envelope import Envelope
from groupflow.store.given import Claim
from groupflow.store.keys import spelled
from groupflow.store.scripts import AnyVerb, Scripts, Verb
from groupflow.store.settlements import calls_of
from tests.store.bench import Bench
from tests.store.story import play
from tests.store.task_state import promote


async def test_how_long_a_task_waited(shop: Bench) -> None:
    """Since it came, or was due; of a retry nothing is told, and no clock makes it negative."""
    told = await play(shop, "take p0 | claim p0 | take p1@0.05")
    while not await promote(shop):
        pass
    await told.go_on("claim p1 | retry p0 | time | claim p0")
    first, late, again = (told.claim_of(id_)[1] for id_ in ("p0'", "p1", "p0"))
    assert 0.0 <= (first.waited or 0.0) < 60.0
    assert late.waited is not None
    assert late.waited <= shop.server_time() / 1e6 - late.task.enqueued_at - 0.05
    assert (again.waited, again.task.enqueued_at) == (None, first.task.enqueued_at)
    ahead = shop.server_time() + 3_600_000_000
    shop.raw.hset(shop.keys("count"), "sequence", f"{ahead:016d}")
    await told.go_on("take p2 | claim p2")
    assert told.claim_of("p2")[1].waited == 0.0


def test_a_burial_counts_attempts_and_names_the_last_error() -> None:
    """What a message died of at the door was none; of many attempts only some errors stay."""
    errors = [{"error": enqueue.REJECTED}, {"error": "A"}, {"error": "B"}]
    for attempt, expected in ((1, 2), (9, 9)):
        task = Task("t1", "t", attempt=attempt, tenant="42")
        claim = Claim("s", 1, b"e", task, None, scope="crm")
        [(_, arguments)] = calls_of([], "plain", [settlements.Bury(claim, "r", errors)], [])[1]
        assert list(arguments[6:]) == ["skip", expected, "t", "42", "B", "crm"]


def test_delays_have_half_of_the_least_memory() -> None:
    assert bound_of_delays(100) == bound_of_delays(100, 0, 0) == 100
    assert bound_of_delays(100, 0, 120) == bound_of_delays(100, 120, 500) == 60


def test_an_envelope_comes_back_as_it_went_and_what_others_wrote_is_a_bare_body() -> None:
    for headers, scope in (({}, ""), ({"a": 1}, "crm")):
        envelope = Envelope("t", "g", None, "rule", headers, b"body\nmore", scope)
        assert Envelope.unpack(envelope.pack()) == envelope
    for packed in (b"no json", b'{"type": "t"}\nbody', b'["t"]\nbody'):
        found = Envelope.unpack_any(packed, "g")
        assert (found.type, found.group, found.body, found.scope) == ("", "g", packed, "")


@pytest.mark.parametrize("verb", [*Verb, *OperatorVerb, *ScheduleVerb])
def test_a_script_has_no_function_that_it_does_not_use(verb: AnyVerb) -> None:
    """Each is named where it is made, and by another; keys are spelled out."""
    text = re.sub(r"--.*", "", Scripts("oldest")[verb].text)
    for name in re.findall(r"^(?:local )?function (\w+)", text, re.MULTILINE):
        assert len(re.findall(rf"\b{name}\b", text)) > 1, name
    assert not re.search(r"\bK\.\w", text)


def test_a_script_speaks_of_no_key_that_is_none() -> None:
    with pytest.raises(KeyError):
        spelled("call('GET', K.unheard_of)")
