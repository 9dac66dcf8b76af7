"""The scripts of both rooms: each file is a verb's or a rule's, and no two verbs share a name."""

from __future__ import annotations

from pathlib import Path

import groupflow
from groupflow.operate.scripts import OperatorVerb
from groupflow.schedule.table import ScheduleVerb
from groupflow.store.scripts import Verb

VERBS = (*Verb, *OperatorVerb, *ScheduleVerb)


def test_every_file_is_sent() -> None:
    package = Path(groupflow.__file__).parent
    there = {f"{path.parents[1].name}/{path.stem}" for path in package.glob("*/lua/*.lua")}
    assert there == {file for verb in VERBS for file in (verb.file, *verb.rules)}


def test_a_name_is_one_verb_s() -> None:
    """A client knows its scripts by these names, and measures tell them so."""
    assert len({str(verb) for verb in VERBS}) == len(VERBS)
