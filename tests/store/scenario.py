"""One life of a store, in which every script has its part: what damaged scripts are tried on."""

from __future__ import annotations

from contextlib import suppress

from groupflow.core.errors import SessionLost
from groupflow.store.given import Claim
from groupflow.store.history import roll_history
from groupflow.store.settlements import Complete, Release, Settlement
from tests.history.invariants import Violation
from tests.store.bench import Bench, Daemon, arrival, bury


class _Life:
    """A scenario under way: what it has seen so far."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.seen: list[Violation] = []

    def look(self) -> None:
        """What is wrong just now."""
        self.seen += self.bench.judge()

    async def claim(self, daemon: Daemon, group: str, worker: str) -> Claim | None:
        """A worker's claim; a broken store may give it nothing."""
        claims = await daemon.claim("grouped" if group else "plain", worker)
        self.look()
        return claims[0] if claims else None


async def live(bench: Bench) -> list[Violation]:
    """Take in, run, crash, hand back, bury and drain; everything that was wrong on the way."""
    life = _Life(bench)
    await _live(life)
    return [*life.seen, *bench.judge_drained()]


async def _live(life: _Life) -> None:
    bench = life.bench
    bench.with_faults = True
    batch = [arrival(f"{group}{n}", group) for n in range(4) for group in "ab"]
    batch += [arrival(f"p{n}") for n in range(3)]
    await bench.enqueue(*batch)
    await bench.enqueue(*batch)  # delivered again
    life.look()
    first, second = await bench.daemon("d1"), await bench.daemon("d2")

    # One daemon takes both groups and a plain task; the other must go without.
    held = [await life.claim(first, "a", "w1"), await life.claim(first, "b", "w2")]
    held.append(await life.claim(first, "", "w3"))
    await life.claim(second, "a", "w1")
    await bench.enqueue(arrival("c0", "c"), arrival("c1", "c"))

    # The first task is done, and its settle is sent again; its group goes on at the other daemon.
    if held[0] is not None:
        await _settle(first, Complete(held[0]))
        life.look()
        so_far = len(bench.events)
        await _settle(first, Complete(held[0]))
        del bench.events[so_far:]  # one settle, answered twice
        life.look()
    moved = await life.claim(second, "a", "w2")

    # The first daemon loses its lease with two tasks in its hands, comes back, and is refused.
    bench.expire("d1")
    await second.sessions.reap()
    life.look()
    await first.register()
    await life.claim(second, "b", "w3")
    for stale in held[1:]:
        if stale is not None:
            for settlement in (Complete(stale), Release(stale), bury(stale)):
                await _settle(first, settlement)
                life.look()

    # The other one hands back its task, gets it again, and buries it.
    if moved is not None:
        await _settle(second, Release(moved))
        life.look()
        moved = await life.claim(second, "a", "w2")
    if moved is not None:
        await _settle(second, bury(moved))
        life.look()

    # It is restarted under its own name, then everything is worked off.
    await second.register()
    life.look()
    await second.work_off(["w4", "w5"])
    await roll_history(bench.client, keep=3600.0, size=1)
    await bench.enqueue(*batch[:2])  # once more, after the end
    await second.work_off(["w4", "w5"])
    await first.sessions.leave()
    await second.sessions.leave()


async def _settle(daemon: Daemon, settlement: Settlement) -> None:
    with suppress(SessionLost):
        await daemon.settle(settlement)
