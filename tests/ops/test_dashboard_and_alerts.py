"""The dashboard and the alert rules: sound by themselves, and of metrics that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from tests.deadlines import deadline
from tests.ops.catalogue import ROOT, series

PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTS, ALERTS_TEST = PROMETHEUS / "alerts.yaml", PROMETHEUS / "alerts_test.yaml"
DASHBOARD: dict[str, Any] = orjson.loads(
    (ROOT / "deploy" / "grafana" / "groupflow.json").read_bytes()
)
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]

_TARGETS = {"job", "instance"}  # labels that Prometheus adds to whatever it scrapes
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
    found = subprocess.run(
        [tool, *arguments],
        cwd=PROMETHEUS,
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline(),
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("sum(groupflow_workers)", None),
        ("groupflow_worker_count", "no metric groupflow_worker_count"),
        ("rate(groupflow_script_seconds[5m])", "no metric groupflow_script_seconds"),
        ('groupflow_workers{tenant="1"}', "no label tenant"),
        ("sum by (verb) (groupflow_workers) unless on (pool) groupflow_workers", "label verb"),
        ("vector(1)", "no metric in"),
    ],
)
def test_the_reading_of_expressions(expression: str, words: str | None) -> None:
    found = list(complaints(expression))
    assert (found == []) if words is None else any(words in each for each in found)


class TestAlerts:
    def test_rules_and_configuration_are_valid(self) -> None:
        assert f"{len(RULES)} rules found" in promtool("check", "rules", ALERTS)
        promtool("check", "config", "prometheus.yaml")

    def test_each_fires_when_it_should_and_only_then(self) -> None:
        assert "SUCCESS" in promtool("test", "rules", ALERTS_TEST)

    def test_none_is_untested(self) -> None:
        text = ALERTS_TEST.read_text()
        for rule in RULES:
            assert f'alertname="{rule["alert"]}"' in text, rule["alert"]

    def test_they_use_metrics_that_there_are(self) -> None:
        assert [each for rule in RULES for each in complaints(rule["expr"])] == []

    def test_each_says_what_it_means_and_what_to_do(self) -> None:
        for rule in RULES:
            assert rule["labels"]["severity"] in {"critical", "warning"}, rule["alert"]
            assert rule["annotations"].keys() == {"summary", "description", "runbook"}
            assert re.fullmatch(r"docs/operating\.md#[a-z0-9-]+", rule["annotations"]["runbook"])


class TestDashboard:
    panels: tuple[dict[str, Any], ...] = tuple(DASHBOARD["panels"])

    def test_ids_are_unique_and_nothing_overlaps(self) -> None:
        ids = [panel["id"] for panel in self.panels]
        assert len(set(ids)) == len(ids)
        taken: dict[tuple[int, int], str] = {}
        for panel in self.panels:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24, panel["title"]
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    other = taken.setdefault((x, y), panel["title"])
                    assert other == panel["title"], f"{panel['title']} lies on {other}"

    def test_its_rows_tell_the_story(self) -> None:
        rows = [panel for panel in self.panels if panel["type"] == "row"]
        titles = [row["title"] for row in rows]
        assert titles == ["Now", "Intake", "Queue", "Work", "Store", "Health"]
        assert all(a["gridPos"]["y"] < b["gridPos"]["y"] for a, b in pairwise(rows))

    def test_it_uses_metrics_that_there_are(self) -> None:
        expressions = [
            target["expr"].replace("$__rate_interval", "5m")
            for panel in self.panels
            for target in panel.get("targets", ())
        ]
        assert len(expressions) > 30
        assert [each for expression in expressions for each in complaints(expression)] == []
        for expression in expressions:
            for name, matchers in _SELECTOR.findall(expression):
                assert {"job", "instance"} <= set(re.findall(r"(\w+)=~", matchers)), name

    def test_it_shows_what_alerts_are_about(self) -> None:
        shown = set().union(*map(metrics_in, self._expressions()))
        asked = set().union(*(metrics_in(rule["expr"]) for rule in RULES))
        yardsticks = {"lease_seconds", "build_info", "tasks_claimed_total"}
        assert asked - shown == {f"groupflow_{name}" for name in yardsticks}
        assert {name for name in series() if "_event_loop_" in name} <= shown

    def test_its_expressions_are_valid(self, tmp_path: Path) -> None:
        rules = [
            {"record": f"panel:{panel['id']}:{target['refId']}", "expr": target["expr"]}
            for panel in self.panels
            for target in panel.get("targets", ())
        ]
        file = tmp_path / "rules.yaml"
        text = yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]})
        file.write_text(text.replace("$__rate_interval", "5m"))
        assert f"{len(rules)} rules found" in promtool("check", "rules", file)

    def test_what_is_summed_is_no_cluster_gauge(self) -> None:
        """Each daemon tells the same of the cluster, so a plain sum counts it once a daemon."""
        files = (*self._expressions(), *(rule["expr"] for rule in RULES))
        for expression in files:
            assert not re.search(r"sum(?: by \([^)]*\))?\s*\(groupflow_cluster_", expression)

    def _expressions(self) -> Iterator[str]:
        for panel in self.panels:
            for target in panel.get("targets", ()):
                yield target["expr"]

    def test_references_lead_somewhere(self) -> None:
        variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
        builtin = {"__rate_interval", "__all"}
        text = orjson.dumps(DASHBOARD).decode()
        used = set(re.findall(r"\$\{?(\w+)", text))
        assert variables <= used | {"datasource"}
        assert used <= variables | builtin
        for panel in self.panels:
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
