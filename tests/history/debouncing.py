"""Bursts: what a newer task may replace waits or runs; what one did replace says by which."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from groupflow.store.keys import SEQUENCE_DIGITS, split_entry
from tests.history.invariants import Violation
from tests.history.snapshot import Snapshot, facts_in

_KIND = (b"group", b"scope", b"type")
_BY = 5  # in a line of the history, behind outcome, type, group, attempt and crashes


def superseded_of(found: Snapshot) -> dict[str, str]:
    """By each task that a newer one replaced, which one."""
    lines = {id_: orjson.loads(line[SEQUENCE_DIGITS:]) for id_, line in found.finished.items()}
    return {id_: line[_BY] for id_, line in lines.items() if line[0] == "superseded"}


def _kind_of(found: Snapshot, id_: str) -> list[str] | None:
    """Type, group and scope of a task, where it is known still."""
    if id_ in found.tasks:
        facts = facts_in(found.tasks[id_])
        return [*facts[:2], facts[5]]
    line = found.finished.get(id_)
    if line is None:
        return None
    facts = orjson.loads(line[SEQUENCE_DIGITS:])
    return None if facts[0] in ("dropped", "swept") else [*facts[1:3], facts[-1]]


def bursts_of(found: Snapshot) -> Iterator[Violation]:
    """Each burst's newest task waits, at its first stage, and is of its group and type."""
    waiting = {entry: group for _, group, entry in found.waiting}
    for name, value in found.hashes.get("debouncing", {}).items():
        entry, length = value[SEQUENCE_DIGITS:], int(name[:4])
        id_ = split_entry(entry)[1]
        if entry not in waiting:
            yield Violation("S12", f"{id_} may be replaced, and doesn't wait")
        task_state = found.lives.get(id_, {})
        scope, _, type_ = name[4 + length :].partition(b" ")
        named = [name[4 : 4 + length], scope, type_]
        if [task_state.get(each) for each in _KIND] != named or b"debounce" not in task_state:
            yield Violation("S12", f"{id_} may be replaced as {name!r}, and is not of that")
        if b"stage" in task_state:
            yield Violation("S12", f"{id_} may be replaced at a later stage")
    for id_, by in superseded_of(found).items():
        kind = _kind_of(found, by)
        if kind is not None and kind != _kind_of(found, id_):
            yield Violation("S12", f"{id_} was superseded by {by}, which is another kind: {kind}")
    yield from _replaced_of(found)


def _replaced_of(found: Snapshot) -> Iterator[Violation]:
    """What is to make way runs, by a claim that may, and a newer task of its kind came."""
    claims = {split_entry(claim.entry)[1]: claim for claim in found.checkpoints}
    for name, value in found.hashes.get("cancels", {}).items():
        by = orjson.loads(value)
        if not isinstance(by, str):
            continue  # an operator's
        id_, kind = name.decode(), _kind_of(found, by)
        claim, task_state = claims.get(id_), found.lives.get(id_, {})
        if claim is None or task_state.get(b"newest") != b"%016d" % claim.fence:
            yield Violation("S12", f"{id_} is to make way for {by}, and runs by no claim that may")
        if kind is not None and kind != _kind_of(found, id_):
            yield Violation("S12", f"{id_} is to make way for {by}, which is another kind: {kind}")
