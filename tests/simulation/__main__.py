"""`make sim`: whole fleets in one process, by seeds; see `command`."""

from __future__ import annotations

import sys

from tests.simulation import clock

clock.install()  # before anything takes the machine's clock by name

from tests.simulation.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
