"""Rigs with schedules: how a test says them, and what must be true of their ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.endtoend.configuration import lines_of
from tests.endtoend.rig import Rig
from tests.history.auditor import audit


class _NoBroker:
    """In place of RabbitMQ: ticks need none, nor do daemons with ``--only workers``."""

    url = "amqp://guest:guest@127.0.0.1:1/"


NO_BROKER: Any = _NoBroker()
WORKERS = ("--only", "workers")


def with_schedules(rig: Rig, *rules: dict[str, Any]) -> None:
    """Put schedules into a rig's configuration, in place of those that it had."""
    before = rig.config.read_text().partition("[[schedules]]")[0]
    rig.config.write_text(before + "".join(map(_toml, rules)))


def _toml(rule: dict[str, Any]) -> str:
    facts = {"type": "work", **rule}
    body = ", ".join(lines_of(facts.pop("body", {})))
    return "\n".join(["[[schedules]]", *lines_of(facts), f"body = {{{body}}}", ""])


def shown(rig: Rig, name: str) -> dict[str, Any]:
    """A schedule as `groupflow schedules --json` shows it."""
    (schedule,) = [each for each in rig.ask("schedules") if each["name"] == name]
    return dict(schedule)


def verb(rig: Rig, *words: str) -> dict[str, Any]:
    """What `groupflow schedules` says to that."""
    return dict(rig.ask("schedules", *words))


def ticks_of(rig: Rig, name: str) -> list[str]:
    """The ids of its ticks that ran, each once, in order."""
    front = f"schedule:{name}:"
    found = {each.id for each in rig.events("start") if each.id.startswith(front)}
    return sorted(found, key=moment_of)


def moment_of(id_: str) -> float:
    """The time in a tick's id."""
    return datetime.fromisoformat(id_.split(":", 2)[2]).timestamp()


def judge_ticks(rig: Rig, name: str, every: float, *, may_lose_writes: bool = False) -> list[str]:
    """What is wrong with the ticks of a schedule all of which are to be made, after the end of all.

    Each from the first to the last, each one task, and none run twice without a crash.
    """
    wrong = [str(v) for keys in rig.partitions for v in audit(rig.raw, keys)]
    ids = ticks_of(rig, name)
    numbers = [round(moment_of(id_) / every) for id_ in ids]
    missing = set(range(numbers[0], numbers[-1] + 1)) - set(numbers)
    wrong += [f"no tick {number * every}" for number in sorted(missing)]
    found = shown(rig, name)
    if found["ticks_total"] != len(ids) and not may_lose_writes:
        wrong.append(f"{found['ticks_total']} ticks were made, and {len(ids)} ran")
    if rig.count("done") + len(rig.dead()) != len(ids) and not may_lose_writes:
        wrong.append(f"{rig.count('done')} tasks are done, of {len(ids)} ticks")
    for id_ in ids:
        runs = [(event.attempt, event.crashes) for event in rig.events("start", id_)]
        if len(set(runs)) != len(runs) and not may_lose_writes:
            wrong.append(f"{id_} ran twice without a crash: {runs}")
    return wrong
