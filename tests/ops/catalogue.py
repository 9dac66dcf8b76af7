"""The metrics, once as docs/metrics.md lists them and once as the code tells them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.process_collector import ProcessCollector

from groupflow.core.measures import Measures, Vitals
from groupflow.operate.pools import PoolStatus
from groupflow.ops import metrics
from tests.schedule.clockwork import schedule
from tests.store.bench import totals

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \|([^|]*)\| (.+) \|$", re.M)


@dataclass(frozen=True, slots=True)
class Entry:
    """A metric's name as it is queried (a histogram's without `_bucket`), its type and labels."""

    name: str
    type: str
    labels: frozenset[str]


def documented() -> list[Entry]:
    """What the document lists, in its order."""
    return [
        Entry(name, type_, frozenset(re.findall(r"`([a-z_]+)`", labels)))
        for name, type_, labels, _ in _ROW.findall(DOCUMENT.read_text())
    ]


def told() -> list[Entry]:
    """What the code tells, of a daemon that does all that there is."""
    return [_entry(family) for family in _families()]


def series() -> dict[str, frozenset[str]]:
    """Every name that an expression may use, and the labels that it has."""
    names: dict[str, frozenset[str]] = {}
    for entry in documented():
        if entry.type == "histogram":
            names[f"{entry.name}_bucket"] = entry.labels | {"le"}
            names[f"{entry.name}_sum"] = names[f"{entry.name}_count"] = entry.labels
        else:
            names[entry.name] = entry.labels
    return names


def _families() -> Iterator[Metric]:
    measures = Measures(["t"], ["plain", "grouped"], ["orders"])
    measures.scripts.observe("renew", 0.001)
    pools = {"plain": 1, "grouped": 1}
    vitals = Vitals(pools, pools, lease_left=1.0, consumes=True, bytes_in_flight=0)
    yield metrics.build_info()
    yield from metrics.from_measures(measures)
    yield from metrics.from_vitals(vitals, lease=8.0, lag=0.0)
    yield from metrics.from_totals(totals())
    yield from metrics.from_schedules([schedule()])
    yield from metrics.from_pools([PoolStatus("couriers", 0, 0, 0, 0.0)])
    yield from metrics.of_store(is_up=True, age=0.0)
    yield from metrics.of_partitions({0: True}, {0: totals()})
    yield from ProcessCollector(registry=CollectorRegistry()).collect()


def _entry(family: Metric) -> Entry:
    labels = frozenset(name for sample in family.samples for name in sample.labels) - {"le"}
    match family.type:
        case "counter":
            return Entry(f"{family.name}_total", "counter", labels)
        case "info":
            return Entry(f"{family.name}_info", "gauge", labels)
    return Entry(family.name, family.type, labels)
