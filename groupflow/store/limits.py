"""How a configuration's limits come to the scripts: as the fields of two hashes.

Each daemon writes them with its session, and again when it takes over a new configuration; so a
namespace has the limits that the last daemon told. Scripts read a rule's limit where the head of a
group names that rule: waiting tasks are under a new limit at once.
"""

from __future__ import annotations

import orjson

from groupflow.core.limits import Limits, Rate, TenantLimit
from groupflow.store.clock import MICROSECONDS


def pack(limits: Limits, partitions: int = 1) -> bytes:
    """A flat list of names and values, as JSON: what `limits.lua` and `caps.lua` find in hashes.

    A tenant and a type have their shares in each of so many partitions.
    """
    flat: list[str] = []
    for name, limit in limits.rules.items():
        if not limit.is_serial:
            flat += ("r" + name, f"{limit.concurrency} {_packed_rate(limit.rate)}")
        if limit.batch_wait:
            flat += ("b" + name, f"{limit.batch} {limit.batch_wait * MICROSECONDS:.0f}")
    if any(limit.batch_wait for limit in limits.rules.values()):
        flat += ("b", "1")
    flat += [
        text for name, told in limits.on_drained.items() for text in ("d" + name, " ".join(told))
    ]
    if limits.on_drained:
        flat += ("d", "1")
    if limits.every_tenant != TenantLimit():
        flat += ("t", _packed_tenant(limits.every_tenant.shared(partitions)))
    for tenant, own in limits.tenants.items():
        flat += ("t" + tenant, _packed_tenant(own.shared(partitions)))
    for number, (pattern, every) in enumerate(limits.types.items()):
        share = every.shared(partitions)
        flat += ("y" + pattern, f"{number} {share.concurrency} {_packed_rate(share.rate)}")
    return orjson.dumps(flat)


def _packed_tenant(limit: TenantLimit) -> str:
    return f"{limit.concurrency} {limit.weight} {_packed_rate(limit.rate)}"


def _packed_rate(rate: Rate | None) -> str:
    """Its interval and its tolerance in µs, 0 for none; and its text."""
    if rate is None:
        return "0 0"
    interval, tolerance = rate.interval * MICROSECONDS, rate.tolerance * MICROSECONDS
    return f"{interval:.3f} {tolerance:.0f} {rate.text}"
