"""What a stranger is told before and after: what is imported, and what came out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from groupflow.demo.tasks import ImportTask
from groupflow.demo.verdict import Verdict

_BAR = 48  # characters of the longer bar
_NAMED = 5  # faults of a kind that are named; the rest is counted


def intro(tasks: Sequence[ImportTask]) -> str:
    """What is going to be imported, and what is hard about it."""
    groups = [task.group for task in tasks if task.group is not None]
    tenants = {task.tenant for task in tasks}
    return (
        "Real rows: flights out of New York and the weather there, 1 to 10 January 2013.\n"
        f"[bold]{len(tasks):,} import tasks for {len(tenants)} tenants[/]:"
        f" {len(groups):,} in {len(set(groups))} groups, {len(tasks) - len(groups):,} plain.\n"
        "A group is an aeroplane of an airline: its own row, then its flights, in order.\n"
    )


def print_summary(console: Console, verdict: Verdict, killed: str, stopped: str) -> None:
    """Print what came out: the speed, what was checked, and the differences if there are any.

    Args:
        console: where to.
        verdict: what came out.
        killed: the daemon that was killed on the way; empty if it did not come to that.
        stopped: why the demo gave up before all was handled; empty if it did not.
    """
    tell(console, f"\n[bold red]{stopped}[/]\n" if stopped else "")
    if verdict.seconds:
        _print_speed(console, verdict.seconds, verdict.serial_seconds, verdict.peak_groups)
    for check, kinds in verdict.checks.items():
        counts = ", ".join(f"{len(numbers):,} {kind}" for kind, numbers in kinds.items())
        _tick(console, check, counts, bad=any(kinds.values()))
        for kind, numbers in kinds.items():
            first = ", ".join(map(str, numbers[:_NAMED]))
            _quote(console, [f"{kind}: task {first}"] if numbers else [])
    _quote(console, verdict.errors)
    if killed:
        held = f"{verdict.crashed:,} tasks that {killed} held ran again, each in its place"
        _tick(console, "kill -9", held, bad=False)
    rows = ", ".join(f"{table} {count:,}" for table, count in verdict.rows.items())
    differing = len(verdict.differences)
    _tick(console, "tables", f"{rows} rows: {differing:,} differ from serial", bad=differing > 0)
    _quote(console, verdict.differences)
    tell(
        console,
        "\n  Why groups: replayed in the order in which the workers would finish without,\n"
        f"  {verdict.ungrouped_failed:,} imports fail and {verdict.ungrouped_wrong:,} of"
        f" {sum(verdict.rows.values()):,} rows come out wrong.",
    )
    equal = verdict.equal and not stopped
    said = "[bold green]Equal" if equal else "[bold red]NOT equal"
    tell(console, f"\n{said} to a serial import{', row by row' if equal else ''}.[/]")


def tell(console: Console, text: str) -> None:
    """Print words of ours, with rich's markup, as they are: nothing coloured, no line broken."""
    console.print(text, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _print_speed(console: Console, took: float, serial: float, peak_groups: int) -> None:
    for name, seconds, style in (("one by one", serial, "yellow"), ("groupflow", took, "green")):
        bar = "█" * max(1, round(_BAR * seconds / max(took, serial)))
        tell(console, f"  {name:<10} {duration(seconds):>12}  [{style}]{bar}[/]")
    tell(
        console,
        f"  [bold]{serial / took:.0f} times as fast[/],"
        f" with up to {peak_groups} groups running at once\n"
        "  [dim]A task first waits 30 to 160 ms, in place of a real import's remote look-up;\n"
        "  one by one is the sum of those waits, plus the writing as measured.[/]\n",
    )


def _tick(console: Console, name: str, text: str, *, bad: bool) -> None:
    mark = "[bold red]✗[/]" if bad else "[green]✓[/]"
    tell(console, f"  {mark} [bold]{name:<9}[/] {text}")


def _quote(console: Console, lines: Sequence[str]) -> None:
    """Text out of the data, the first few lines of it: never to be taken for markup."""
    for line in lines[:_NAMED]:
        console.print(f"      {line}", markup=False, highlight=False, soft_wrap=True)
