"""Tasks that have to start in time, and don't."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from groupflow.store.scripts import Verb
from tests.model.arrivals import Arrivals
from tests.model.claims import ClaimsAndSettles
from tests.model.machine import POOL, SCOPES, WORKERS, daemons, flags, groups, scopes
from tests.model.promise import ModelTask

SOON = 3600.0  # seconds; no history lasts so long
delays = st.sampled_from((0.0, 0.0, SOON))
named_pools = st.sampled_from(("", "", POOL))


class Expiry(Arrivals, ClaimsAndSettles):
    """Tasks expire where they wait, as claims meet them or before."""

    @rule(group=groups, scope=scopes, delay=delays, aside=flags, pool=named_pools)
    def enqueue_expiring(
        self, group: str, scope: str, delay: float, aside: bool, pool: str
    ) -> None:
        """Some tasks that have to start in time, in front of one that has not."""
        ids = self.new(2)
        facts: dict[str, Any] = {"delay": delay, "aside": aside} if delay else {}
        self.enqueue_tasks(ids, group, scope=scope, pool=pool, expires=2 * SOON, **facts)
        self.enqueue_tasks(self.new(1), group, scope=scope, pool=pool)

    @rule(group=groups, by_claim=flags, daemon=daemons, again=flags)
    def expire(self, group: str, by_claim: bool, daemon: str, again: bool) -> None:
        """Time is over for those of a group; a claim may be the first to see that."""
        if not self._that_may_expire(group):
            self.enqueue_expiring(group, SCOPES[0], 0.0, aside=False, pool="")
        for task in self._that_may_expire(group):
            self.raw.zadd(self.keys("expiring"), {task.id: 1})
            task.state = "expired"
        self.expiring = group
        if by_claim:
            self.claim(daemon, "grouped" if group else "plain", WORKERS, again=again)
        before = self.raw.hget(self.keys("count"), "expired_unsaid") or 0
        assert self.run(self.client.run(Verb.EXPIRE, 100, 1_000_000)) >= int(before)
        assert self.run(self.client.run(Verb.EXPIRE, 100, 1_000_000)) == 0
        self.expiring = ""
        assert not self.raw.zrangebyscore(self.keys("expiring"), 0, 1)

    def _that_may_expire(self, group: str) -> list[ModelTask]:
        """Those that wait and have not started."""
        of_group = [t for t in self.promise.tasks.values() if t.group == group and t.expires]
        return [t for t in of_group if t.state in ("waiting", "aside") and not t.fences]
