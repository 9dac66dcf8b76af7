"""`groupflow scans`: what each scan of a table has done and left; to wake or forget one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import ConfigOption, JsonOption, moment, print_json
from groupflow.cli.safe import plain_text, say
from groupflow.cli.store import ask_store

if TYPE_CHECKING:
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.scans import Scans, ScanStory, ShardStory

verbs = typer.Typer()
scans_verbs = typer.Typer(help="Show the scans of tables; wake or forget one.")
verbs.add_typer(scans_verbs, name="scans")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The scan's name.")]


@scans_verbs.callback(invoke_without_command=True)
def scans(
    context: typer.Context, *, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show all scans: shards, rows done, deferred and dead, and when all was last done.

    For example:

      groupflow scans

      groupflow scans show orders
    """
    if context.invoked_subcommand is not None:
        return
    found = ask_store(config, lambda namespace: _scans(namespace).every())
    if as_json:
        print_json(found)
    elif not found:
        say("no daemon has had a scan")
    else:
        _print(found)


@scans_verbs.command("show")
def show(name: NameArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the shards of a scan, each in a line.

    For example:

      groupflow scans show orders
    """

    async def ask(namespace: Namespace) -> list[ShardStory] | None:
        try:
            return await _scans(namespace).shards(name)
        except KeyError:
            return None

    found = ask_store(config, ask)
    if found is None:
        raise _unknown(name)
    if as_json:
        print_json([each.as_json() for each in found])
    for each in [] if as_json else found:
        say(f"{each.group}: {each.words()}")


@scans_verbs.command("wake")
def wake(name: NameArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """End the sleep of a scan's shards: there is something to do.

    For example:

      groupflow scans wake orders
    """

    async def ask(namespace: Namespace) -> bool:
        try:
            await _scans(namespace).wake(name)
        except KeyError:
            return False
        return True

    if not ask_store(config, ask):
        raise _unknown(name)
    if as_json:
        print_json({"name": name, "woken": True})
    else:
        say(f"{name} is awake")


@scans_verbs.command("drop")
def drop(name: NameArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Forget a scan that no daemon has any more; its shards end. The table isn't touched.

    For example:

      groupflow scans drop orders
    """
    if not ask_store(config, lambda namespace: _scans(namespace).drop(name)):
        raise _unknown(name)
    if as_json:
        print_json({"name": name, "dropped": True})
    else:
        say(f"{name} is forgotten, unless a daemon still has it")


def _scans(namespace: Namespace) -> Scans:
    from groupflow.operate.scans import Scans

    return Scans(namespace)


def _unknown(name: str) -> typer.Exit:
    say(f"there is no scan {name!r}: `groupflow scans` lists them", err=True)
    return typer.Exit(Exit.FAILED)


def _print(found: Sequence[ScanStory]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    names = ("scan", "shards", "running", "idle", "done", "deferred", "dead", "last pass")
    table = Table(*names, box=None)
    for each in found:
        numbers = (each.shards, each.running, each.idle, each.rows_done, each.rows_deferred)
        last = "never" if each.last_pass is None else moment(each.last_pass)
        shown = [f"{number:,}" for number in (*numbers, each.rows_dead)]
        table.add_row(Text(plain_text(each.name)), *shown, last)
    console.print(table)
    for each in found:
        if each.changing_to is not None:
            say(f"{each.name}: its shards end, and then there are {each.changing_to}")
        if each.stopped:
            say(f"{each.name}: {each.stopped} shards stand; see `groupflow scans show {each.name}`")
        if each.trouble:
            say(f"{each.name}: can't fetch: {each.trouble}")
