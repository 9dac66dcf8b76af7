"""One life of a store, in which every script has its part: what damaged scripts are tried on."""

from __future__ import annotations

from contextlib import suppress

from groupflow.core.errors import SessionLost
from groupflow.store.given import Claim
from groupflow.store.history import rotate_history
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
    task_state = _Life(bench)
    await _live(task_state)
    return [*task_state.seen, *bench.judge_drained()]


async def _live(task_state: _Life) -> None:
    bench = task_state.bench
    bench.with_faults = True
    batch = [arrival(f"{group}{n}", group) for n in range(4) for group in "ab"]
    batch += [arrival(f"p{n}") for n in range(3)]
    await bench.enqueue(*batch)
    await bench.enqueue(*batch)  # delivered again
    task_state.look()
    first, second = await bench.daemon("d1"), await bench.daemon("d2")

    # One daemon takes both groups and a plain task; the other must go without.
    held = [await task_state.claim(first, "a", "w1"), await task_state.claim(first, "b", "w2")]
    held.append(await task_state.claim(first, "", "w3"))
    await task_state.claim(second, "a", "w1")
    await bench.enqueue(arrival("c0", "c"), arrival("c1", "c"))

    # The first task is done, and its settle is sent again; its group goes on at the other daemon.
    if held[0] is not None:
        await _settle(first, Complete(held[0]))
        task_state.look()
        so_far = len(bench.events)
        await _settle(first, Complete(held[0]))
        del bench.events[so_far:]  # one settle, answered twice
        task_state.look()
    moved = await task_state.claim(second, "a", "w2")

    # The first daemon loses its lease with two tasks in its hands, comes back, and is refused.
    bench.expire("d1")
    await second.sessions.reap()
    task_state.look()
    await first.register()
    await task_state.claim(second, "b", "w3")
    for stale in held[1:]:
        if stale is not None:
            for settlement in (Complete(stale), Release(stale), bury(stale)):
                await _settle(first, settlement)
                task_state.look()

    # The other one hands back its task, gets it again, and buries it.
    if moved is not None:
        await _settle(second, Release(moved))
        task_state.look()
        moved = await task_state.claim(second, "a", "w2")
    if moved is not None:
        await _settle(second, bury(moved))
        task_state.look()

    # It is restarted under its own name, then everything is worked off.
    await second.register()
    task_state.look()
    await second.work_off(["w4", "w5"])
    await rotate_history(bench.client, keep=3600.0, size=1)
    await bench.enqueue(*batch[:2])  # once more, after the end
    await second.work_off(["w4", "w5"])
    await first.sessions.leave()
    await second.sessions.leave()


async def _settle(daemon: Daemon, settlement: Settlement) -> None:
    with suppress(SessionLost):
        await daemon.settle(settlement)
