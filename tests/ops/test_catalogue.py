"""The metrics as docs/metrics.md lists them, and code, dashboard and alert rules beside it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.process_collector import ProcessCollector

from groupflow.core.measures import OUTCOMES, PAUSES, TYPES_SHOWN, Measures, Vitals
from groupflow.operate.pools import PoolStatus
from groupflow.ops import metrics
from tests.programs import must
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
    measures.intake.group_full["crm"] += 1
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


def test_document_and_code_agree() -> None:
    by_name = {entry.name: entry for entry in told()}
    listed = documented()
    assert {entry.name: entry for entry in listed} == by_name
    assert len(listed) == len(by_name), "one is listed twice"
    for entry in listed:
        assert re.fullmatch(r"(groupflow|process)_[a-z_]+", entry.name)
        assert entry.name.endswith("_total") == (entry.type == "counter"), entry
        assert not entry.labels & {"group", "tenant", "id", "task"}, entry
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", DOCUMENT.read_text(), re.M))
    for row, values in (("outcome", OUTCOMES), ("reason", PAUSES)):
        assert [value for value in values if f"`{value}`" not in rows[row]] == []


def test_types_are_capped() -> None:
    measures = Measures([f"t{n:03}" for n in range(2 * TYPES_SHOWN)])
    assert len(measures.types.named) == TYPES_SHOWN
    assert measures.types.of("t000") is not measures.types.other
    assert measures.types.of(f"t{2 * TYPES_SHOWN - 1:03}") is measures.types.other
    assert measures.types.of("a stranger's") is measures.types.other
    assert len(measures.types.named) == TYPES_SHOWN


PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTS, ALERTS_TEST = PROMETHEUS / "alerts.yaml", PROMETHEUS / "alerts_test.yaml"
DASHBOARD: dict[str, Any] = orjson.loads(
    (ROOT / "deploy" / "grafana" / "groupflow.json").read_bytes()
)
SCALED_OBJECT = ROOT / "deploy" / "kubernetes" / "overlays" / "example" / "scaledobject.yaml"
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
EXPRESSIONS: list[str] = [t["expr"] for panel in PANELS for t in panel.get("targets", ())]
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]

_TARGETS = {"job", "instance"}  # labels that Prometheus adds to all that it scrapes
_KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
_CLAUSE = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")


def metrics_in(expression: str) -> set[str]:
    """The names of all metrics in an expression."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", _CLAUSE.sub(" ", bare))
    names = re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?!\w)(?!\s*\()", bare)
    return set(names) - _KEYWORDS


def complaints(expression: str) -> Iterator[str]:
    """What in an expression doesn't exist: its metrics, and their labels."""
    known = series()
    used = metrics_in(expression)
    if not used:
        yield f"no metric in {expression}"
    for name in used - known.keys():
        yield f"no metric {name}"
    for name, matchers in _SELECTOR.findall(re.sub(r'"[^"]*"', '""', expression)):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            if label not in known.get(name, frozenset()) | _TARGETS:
                yield f"{name} has no label {label}"
    labels = frozenset().union(*(known.get(name, frozenset()) for name in used))
    for _, clause in _CLAUSE.findall(expression):
        for label in re.findall(r"\w+", clause):
            if label not in labels | _TARGETS:
                yield f"no metric of {expression} has a label {label}"


def promtool(*arguments: str | Path) -> str:
    tool = shutil.which("promtool")
    assert tool, "promtool is missing: make servers installs it (Debian's package prometheus)"
    return must(tool, *arguments, folder=PROMETHEUS)


def test_alerts() -> None:
    """They are valid, fire when they should and only then, and say what to do."""
    assert f"{len(RULES)} rules found" in promtool("check", "rules", ALERTS)
    promtool("check", "config", "prometheus.yaml")
    assert "SUCCESS" in promtool("test", "rules", ALERTS_TEST)
    tested = ALERTS_TEST.read_text()
    for rule in RULES:
        assert f'alertname="{rule["alert"]}"' in tested, rule["alert"]
        assert list(complaints(rule["expr"])) == []
        assert rule["labels"]["severity"] in {"critical", "warning"}, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        assert re.fullmatch(r"docs/operating\.md#[a-z0-9-]+", rule["annotations"]["runbook"])


def test_the_dashboard_s_expressions(tmp_path: Path) -> None:
    """Valid, of metrics that there are, and of the chosen targets.

    What is summed is no gauge of the cluster: each daemon tells the same of it.
    """
    expressions = [each.replace("$__rate_interval", "5m") for each in EXPRESSIONS]
    rules = [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(expressions)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)
    assert len(expressions) > 30
    for expression in expressions:
        assert list(complaints(expression)) == []
        for name, matchers in _SELECTOR.findall(expression):
            assert {"job", "instance"} <= set(re.findall(r"(\w+)=~", matchers)), name
    for expression in (*expressions, *(rule["expr"] for rule in RULES)):
        assert not re.search(r"sum(?: by \([^)]*\))?\s*\(groupflow_cluster_", expression)


def test_the_dashboard_shows_what_alerts_are_about() -> None:
    shown = set().union(*map(metrics_in, EXPRESSIONS))
    asked = set().union(*(metrics_in(rule["expr"]) for rule in RULES))
    yardsticks = {"lease_seconds", "tasks_claimed_total"}
    assert asked - shown == {f"groupflow_{name}" for name in yardsticks}
    assert {name for name in series() if "_event_loop_" in name} <= shown


@pytest.mark.parametrize(
    ("waiting", "oldest", "wanted"), [(40, 3.0, 48), (40, 0.0, 8), (0, 0.0, 8)]
)
def test_keda_counts_what_daemons_can_do(
    waiting: int, oldest: float, wanted: int, tmp_path: Path
) -> None:
    """None of what is delayed or waits for a pool, where nothing else waits.

    And none of what pools' workers hold: here 5 of 13 tasks.
    """
    told = dict[str, float]()
    for daemon, busy in (("a", 6), ("b", 2)):
        for state, number in (("ready", waiting), ("running", 13)):
            told[f'cluster_groups{{instance="{daemon}",state="{state}"}}'] = number
        for pool in ("plain", "grouped"):
            of = f'instance="{daemon}",pool="{pool}"'
            told[f"workers_busy{{{of}}}"] = busy
            told[f"cluster_oldest_waiting_seconds{{{of}}}"] = oldest
            told[f'cluster_tasks{{{of},state="queued"}}'] = waiting
            told[f'cluster_tasks{{{of},state="running"}}'] = 13
    triggers = yaml.safe_load(SCALED_OBJECT.read_text())["spec"]["triggers"]
    queries = [each["metadata"]["query"] for each in triggers]
    assert [complaint for each in queries for complaint in complaints(each)] == []
    answer = {"eval_time": "1m", "exp_samples": [{"labels": "{}", "value": wanted}]}
    rows = [{"series": f"groupflow_{name}", "values": f"{n}x5"} for name, n in told.items()]
    asked = [{"expr": each, **answer} for each in queries]
    test = {"interval": "1m", "input_series": rows, "promql_expr_test": asked}
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"tests": [test]}))
    assert "SUCCESS" in promtool("test", "rules", file)


def test_references_lead_somewhere() -> None:
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    builtin = {"__rate_interval", "__all"}
    text = orjson.dumps(DASHBOARD).decode()
    used = set(re.findall(r"\$\{?(\w+)", text))
    assert variables <= used | {"datasource"}
    assert used <= variables | builtin
    for panel in PANELS:
        if panel["type"] == "row":
            continue
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            known = frozenset().union(*(series()[n] for n in metrics_in(target["expr"])))
            assert labels <= known | _TARGETS, panel["title"]
