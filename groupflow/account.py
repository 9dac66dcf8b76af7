"""What a daemon tells of itself: to health probes, to `status`, to metrics."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from time import monotonic
from typing import Any

from groupflow.core.checkup import Check
from groupflow.core.measures import Vitals
from groupflow.flow.intakes import Intakes
from groupflow.flow.reload import Reloader
from groupflow.flow.workforce import Workforce
from groupflow.settings.model import Settings
from groupflow.upkeep.lease import LeaseThread


@dataclass(slots=True)
class Account:
    """A daemon's parts, for reports on them.

    Attributes:
        settings: those in force; a reload replaces them.
        workforce: its workers.
        leases: what it holds in each partition.
        reloader: knows the last reload.
        intake: `None` where it takes nothing in.
        started: set once it serves.
        stopping: set once it is to end.
    """

    settings: Settings
    workforce: Workforce
    leases: LeaseThread
    reloader: Reloader
    intake: Intakes | None
    started: asyncio.Event
    stopping: asyncio.Event

    def checks(self) -> list[Check]:
        """What `/readyz` tells of this daemon's own parts."""
        if self.stopping.is_set():
            return [Check("daemon", "fail", "stopping: it finishes what runs and takes no more")]
        return [
            self._lease_check(),
            *self._claims_check(),
            *([self.intake.check()] if self.intake else []),
        ]

    def _lease_check(self) -> Check:
        renewers = self.leases.renewers
        without = [n for n, renewer in enumerate(renewers) if not renewer.holds_lease]
        of = len(renewers)
        if not self.started.is_set() or len(without) == of:
            return Check("lease", "fail", "none: nothing runs")
        if without:
            missing = ", ".join(map(str, without))
            return Check("lease", "warn", f"none in {len(without)} of {of} partitions: {missing}")
        return Check("lease", "ok", "held")

    def _claims_check(self) -> list[Check]:
        """Where Redis gives nothing out for now; see ADR 0045."""
        ends = {n: renewer.held_until for n, renewer in enumerate(self.leases.renewers)}
        held = {n: end - monotonic() for n, end in ends.items() if end is not None}
        if not held:
            return []
        where = f"partition {', '.join(map(str, held))}" if len(ends) > 1 else "Redis"
        left = max(0.0, *held.values(), 0.0)
        found = f"{where} gives nothing out: it may have lost claims; {left:.1f} s at the most"
        return [Check("claims", "warn", found, "They go on once every daemon has renewed.")]

    def info(self) -> dict[str, Any]:
        """What `status` tells of it."""
        reloaded = self.reloader.last
        return {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "workers": sum(self.workforce.sizes.values()),
            "lease": self.settings.workers.lease,
            **(self.intake.told() if self.intake else {}),
            **({"reload": reloaded.as_json()} if reloaded else {}),
        }

    def vitals(self) -> Vitals:
        """How it is now."""
        return Vitals(
            workers=self.workforce.sizes,
            busy=self.workforce.busy,
            lease_left=min(renewer.left for renewer in self.leases.renewers),
            consumes=None if self.intake is None else self.intake.consumes,
            bytes_in_flight=0 if self.intake is None else self.intake.bytes_in_flight,
            active_queues=0 if self.intake is None else self.intake.active_queues,
        )
