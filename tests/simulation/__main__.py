"""`make sim`: whole fleets in one process, by seeds (README of this package: its `run`)."""

from __future__ import annotations

from tests.simulation import clock

clock.install()  # before anything takes the machine's clock by name

from tests.simulation.command import main  # noqa: E402

main()
