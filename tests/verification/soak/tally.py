"""`python -m tests.verification.soak.tally FOLDER`: sums up the reports below a folder."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import orjson

from tests.verification.soak.invariants import INVARIANTS


def main() -> None:
    """Print the sums as Markdown."""
    folder = Path(sys.argv[1])
    reports = [orjson.loads(path.read_bytes()) for path in sorted(folder.rglob("report.json"))]
    void = [report for report in reports if report.get("void")]
    reports = [report for report in reports if not report.get("void")]
    faults: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    figures: Counter[str] = Counter()
    for report in reports:
        faults.update(report["faults_done"])
        checked.update(report["checked"])
        figures.update(report["figures"])
        broken.update(text.partition(":")[0] for text in report["violations"])
    seconds = sum(report["seconds"] for report in reports)
    seeds = sorted(report["seed"] for report in reports)
    print(f"{len(reports)} soaks, {faults.total():,} faults, {seconds / 3600:.1f} h")
    print(f"seeds: {', '.join(map(str, seeds))}")
    for report in void:
        print(f"void, not counted: seed {report['seed']}, RabbitMQ came back with {report['void']}")
    print("\n| | promise | checked | violations |\n|---|---|---|---|")
    for name, text in INVARIANTS.items():
        print(f"| {name} | {text} | {checked[name]:,} | {broken[name]:,} |")
    print("\n| fault | times |\n|---|---|")
    for name, count in sorted(faults.items()):
        print(f"| {name} | {count:,} |")
    print("\n| counted | |\n|---|---|")
    for name, count in figures.items():
        print(f"| {name} | {count:,} |")
    for report in reports:
        for text in report["violations"]:
            print(f"\nseed {report['seed']}: {text[:300]}")


if __name__ == "__main__":
    main()
