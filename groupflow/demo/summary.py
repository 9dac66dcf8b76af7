"""The end of the demo: what came out, in words that a stranger understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from groupflow.demo.compare import TableComparison
from groupflow.demo.history import Verdict
from groupflow.demo.tasks import ImportTask

_BAR = 48  # characters of the longer bar
_NAMED = 5  # faults of a kind that are named; the rest is counted


@dataclass(frozen=True, slots=True)
class Result:
    """All that the demo found out.

    Attributes:
        tasks: what was published.
        daemons: how many daemons imported it.
        verdict: what the handlers' log says.
        tables: how the tables compare with those of the serial import.
        serial_seconds: how long the serial import takes.
        ungrouped_failed: imports that fail without groups.
        ungrouped_wrong: rows that come out wrong without groups.
        stopped: why the demo gave up before all was handled, ``None`` if it did not.
    """

    tasks: Sequence[ImportTask]
    daemons: int
    verdict: Verdict
    tables: Sequence[TableComparison]
    serial_seconds: float
    ungrouped_failed: int
    ungrouped_wrong: int
    stopped: str | None = None

    @property
    def equal(self) -> bool:
        """Whether all is as it must be: the demo's exit status."""
        same = not any(table.differing for table in self.tables)
        return same and self.verdict.faultless and self.stopped is None


def print_intro(console: Console, tasks: Sequence[ImportTask]) -> None:
    """Say what is going to be imported, and what is hard about it."""
    groups = {task.group for task in tasks if task.group is not None}
    grouped = sum(1 for task in tasks if task.group is not None)
    tenants = {task.tenant for task in tasks}
    _print(
        console,
        "Real rows: flights out of New York and the weather there, 1 to 10 January 2013.\n"
        f"[bold]{len(tasks):,} import tasks for {len(tenants)} tenants[/]:"
        f" {grouped:,} in {len(groups)} groups, {len(tasks) - grouped:,} plain.\n"
        "A group is an aeroplane of an airline: its own row, then its flights, in order.\n",
    )


def print_summary(console: Console, result: Result) -> None:
    """Print what came out: the speed, what was checked, and the differences if there are any."""
    if result.stopped:
        _print(console, f"\n[bold red]{result.stopped}[/]")
    _print_speed(console, result)
    _print_checks(console, result)
    _print_ungrouped(console, result)
    if result.equal:
        _print(console, "\n[bold green]Equal to a serial import, row by row.[/]")
    else:
        _print(console, "\n[bold red]NOT equal to a serial import.[/]")


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)


def _print_speed(console: Console, result: Result) -> None:
    took, serial = result.verdict.seconds, result.serial_seconds
    _print(console, f"\n[bold]{len(result.tasks):,} import tasks by {result.daemons} daemons[/]\n")
    if not took:
        return
    longest = max(took, serial)
    for name, seconds, style in (("one by one", serial, "yellow"), ("groupflow", took, "green")):
        bar = "█" * max(1, round(_BAR * seconds / longest))
        _print(console, f"  {name:<10} {duration(seconds):>12}  [{style}]{bar}[/]")
    _print(
        console,
        f"  [bold]{serial / took:.0f} times as fast[/],"
        f" with up to {result.verdict.peak_groups} groups running at once",
    )
    _print(
        console,
        "  [dim]A task first waits 30 to 160 ms, in place of a real import's remote look-up;\n"
        "  one by one is the sum of those waits, plus the writing as measured.[/]",
    )


def _print_checks(console: Console, result: Result) -> None:
    verdict, tables = result.verdict, result.tables
    _print(console, "")
    _check(
        console,
        "order",
        {
            "tasks out of order": verdict.out_of_order,
            "started while another of their group ran": verdict.overlapping,
        },
    )
    lost_or_not = {"lost": verdict.lost, "run twice": verdict.repeated, "failed": verdict.failed}
    if verdict.misrouted:
        lost_or_not["in a wrong group"] = verdict.misrouted
    _check(console, "delivery", lost_or_not)
    _quote(console, verdict.errors[:_NAMED])
    rows = ", ".join(f"{table.table} {table.rows:,}" for table in tables)
    differing = sum(table.differing for table in tables)
    _tick(console, "tables", f"{rows} rows: {differing:,} differ from serial", differing)
    for table in tables:
        _quote(console, table.named)


def _check(console: Console, name: str, faults: Mapping[str, Sequence[int]]) -> None:
    """One line with the counts of some kinds of faults, and one each that names the tasks."""
    counts = ", ".join(f"{len(numbers):,} {kind}" for kind, numbers in faults.items())
    _tick(console, name, counts, sum(map(len, faults.values())))
    for kind, numbers in faults.items():
        if numbers:
            more = ", …" if len(numbers) > _NAMED else ""
            first = ", ".join(str(number) for number in numbers[:_NAMED])
            _quote(console, [f"{kind}: task {first}{more}"])


def _tick(console: Console, name: str, text: str, faults: int) -> None:
    mark = "[bold red]✗[/]" if faults else "[green]✓[/]"
    _print(console, f"  {mark} [bold]{name:<9}[/] {text}")


def _quote(console: Console, lines: Sequence[str]) -> None:
    """Text out of the data: never to be taken for markup."""
    for line in lines:
        console.print(f"      {line}", markup=False, highlight=False, soft_wrap=True)


def _print_ungrouped(console: Console, result: Result) -> None:
    rows = sum(table.rows for table in result.tables)
    _print(
        console,
        "\n  Why groups: replayed in the order in which the workers would finish without,\n"
        f"  {result.ungrouped_failed:,} imports fail and {result.ungrouped_wrong:,} of {rows:,}"
        " rows come out wrong.",
    )
