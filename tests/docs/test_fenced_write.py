"""The guarded write of the documents, against a zombie and a real database."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing

from tests.deadlines import short_lease
from tests.endtoend.conftest import MakeRig, make_rig
from tests.endtoend.rig import Job

__all__ = ["make_rig"]

APP = "tests.docs.zombie:app"


def test_a_zombies_late_write_is_refused(make_rig: MakeRig) -> None:
    """Frozen past its lease and woken later, it writes: where the guard is, it changes nothing."""
    rig = make_rig(workers={"lease": short_lease(2.0)})
    gate, database = rig.gate(), str(rig.folder / "contacts.db")
    zombie = rig.spawn("zombie", app=APP)
    zombie.wait_for("intake.started")
    kinds = ("guarded", "unguarded")
    facts = {"gate": str(gate), "database": database}
    rig.publish(
        Job(kind, kind, type=kind, facts={**facts, "id": n}) for n, kind in enumerate(kinds)
    )
    first = {kind: rig.wait_for_start(kind) for kind in kinds}
    zombie.send(signal.SIGSTOP)
    rig.spawn("second", app=APP)
    for kind in kinds:
        rig.wait_for_end(kind)
    rig.wait_for_all()
    assert _names(database) == ["the second run's"] * 2

    gate.touch()
    zombie.send(signal.SIGCONT)
    for kind in kinds:
        late = rig.wait_for_end(kind, times=2)
        second = rig.events("start", kind)[1]
        assert late.pid == first[kind].pid != second.pid
        assert second.fence > first[kind].fence
    outcomes = {kind: rig.events("end", kind)[1].how for kind in kinds}
    assert outcomes == {"guarded": "refused", "unguarded": "written"}
    assert _names(database) == ["the second run's", "the zombie's"]
    rig.until(lambda: bool(zombie.events("claim.lost")), "the zombie's settles to be refused")
    assert rig.count("done") == 2


def _names(database: str) -> list[str]:
    with closing(sqlite3.connect(database)) as reader:
        return [name for (name,) in reader.execute("SELECT name FROM contact ORDER BY id")]
