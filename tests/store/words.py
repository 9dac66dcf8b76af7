"""What the words of a story stand for, and how they are compared with what was seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from groupflow.core.limits import Debounce
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Pool
from groupflow.store.given import Claim
from groupflow.store.settlements import Complete, Release, Retry, Settlement
from tests.store.bench import arrival, bury, ids
from tests.store.task_state import FAILURE, HOUR, advance
from tests.store.worker import POOL

QUIET, MOST = 60.0, 600.0  # seconds, of what debounces
_TASK = re.compile(r"(?:(?P<tenant>\d)/)?(?P<id>[\w-]+)(?P<facts>.*)")
WAYS: dict[str, Callable[[Claim, Any, Any], Settlement]] = {
    "done": lambda claim, *_: Complete(claim),
    "release": lambda claim, *_: Release(claim),
    "bury": lambda claim, *_: bury(claim),
    "park": lambda claim, *_: bury(claim, park=True),
    "retry": lambda claim, standing, scope: Retry(claim, HOUR, FAILURE, standing, scope),
    "retry_now": lambda claim, standing, _: Retry(claim, 0.0, FAILURE, standing),
    "advance": lambda claim, standing, _: advance(claim, standing=standing),
}


def of(tenant: str, id_: str, group: str | None = None, pool: str | None = None) -> Arrival:
    """A message of a tenant."""
    each = arrival(id_, group)
    each.envelope.tenant, each.envelope.scope = tenant, f"{int(tenant):08x}"
    each.envelope.named_pool = pool
    return each


def made(word: str) -> Arrival:
    """The message that a word stands for."""
    parts = _TASK.fullmatch(word)
    assert parts, f"no task is written {word!r}"
    id_ = parts["id"]
    group = None if id_[0] in "pq" else id_[0]
    each = of(parts["tenant"], id_, group) if parts["tenant"] else arrival(id_, group)
    for mark, value in re.findall(r"([@~!=%+^<])([\w.-]*)", parts["facts"]):
        match mark:
            case "@":
                each = replace(each, delay=float(value or HOUR))
            case "~":
                each = replace(each, steps_aside=True)
            case "!":
                each = replace(each, dead="no")
            case "+":
                each = replace(each, priority=float(value))
            case "^":
                each.envelope.type = "changed"
                each = replace(each, debounce=Debounce(QUIET, MOST))
            case "<":
                each = replace(each, max_queued=int(value))
            case "=":
                each.envelope.named_pool = value or POOL
            case _:
                each.envelope.rule = value
    return each


def pool_of(word: str) -> Pool:
    """The pool of a task."""
    return "plain" if word[0] in "pq" else "grouped"


def compare(claims: Sequence[Claim], words: Sequence[str]) -> None:
    """Tasks that were claimed are those that were expected, and as these were told."""
    like = [*words, *[""] * len(claims)]
    told = [_told(claim, like[n]) for n, claim in enumerate(claims)]
    assert told == [*words], f"{told} were claimed"


def _told(claim: Claim, like: str) -> str:
    task = claim.task
    facts = [("/", task.attempt), ("*", task.crashes), ("#", task.stage)]
    shown = "".join(f"{mark}{value}" for mark, value in facts if mark in like)
    return ">".join([f"{task.id}{shown}", *ids(claim.run)])


def check(found: object, facts: Sequence[str]) -> None:
    """What is known has these values."""
    told = [f"{name}={getattr(found, name)}" for name in (fact.split("=")[0] for fact in facts)]
    assert told == [*facts], f"{told} of {found}"
