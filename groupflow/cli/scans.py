"""`groupflow scans`: what each scan of a table has done and left; to wake, hold or forget one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from groupflow.cli.options import argument, moment, say, say_in_columns, user_name
from groupflow.cli.verb import Answer, Call, failed, listing, verb

if TYPE_CHECKING:
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.scans import Scans, ScanStory

_Found = TypeVar("_Found")

verbs = typer.Typer()
scans_verbs = typer.Typer(help="Show the scans of tables; wake, pause, resume or forget one.")
verbs.add_typer(scans_verbs, name="scans")

NameArgument = Annotated[str, argument("NAME", "The scan's name.")]


@listing(scans_verbs, "scans")
def scans(call: Call) -> Answer:
    """Show all scans: shards, rows done, deferred and dead, and when all was last done."""
    from groupflow.operate.scans import Scans

    found = call.ask(lambda namespace: Scans(namespace).every())
    return Answer(found, (lambda: _print(found)) if found else ["no daemon has had a scan"])


@verb(scans_verbs, "show")
def show(call: Call, name: NameArgument) -> Answer:
    """Show the shards of a scan, each in a line.

    For example:

      groupflow scans show orders
    """
    _, found = _ask(call, name, lambda scans: scans.look(name))
    lines = [f"{each.group}: {each.words()}" for each in found]
    return Answer([each.row for each in found], lines)


@verb(scans_verbs, "wake")
def wake(call: Call, name: NameArgument) -> Answer:
    """End the sleep of a scan's shards: there is something to do.

    For example:

      groupflow scans wake orders
    """
    _ask(call, name, lambda scans: scans.wake(name), "woke_scan")
    return Answer({"name": name, "woken": True}, [f"{name} is awake"])


@verb(scans_verbs, "pause")
def pause(call: Call, name: NameArgument) -> Answer:
    """Hold all shards of a scan; one that runs first ends its page.

    For example:

      groupflow scans pause orders
    """
    changed = _ask(call, name, lambda scans: scans.pause(name, user_name()), "paused_scan")
    return Answer({"name": name, "changed": changed}, [f"{name} is paused"])


@verb(scans_verbs, "resume")
def resume(call: Call, name: NameArgument) -> Answer:
    """Let all shards of a scan go on, those too that were paused one by one.

    For example:

      groupflow scans resume orders
    """
    changed = _ask(call, name, lambda scans: scans.resume(name), "resumed_scan")
    return Answer({"name": name, "changed": changed}, [f"{name} goes on"])


@verb(scans_verbs, "drop")
def drop(call: Call, name: NameArgument) -> Answer:
    """Forget a scan that no daemon has any more; its shards end. The table isn't touched.

    For example:

      groupflow scans drop orders
    """
    if not _ask(call, name, lambda scans: scans.drop(name), "dropped_scan"):
        raise _unknown(name)
    words = f"{name} is forgotten, unless a daemon still has it"
    return Answer({"name": name, "dropped": True}, [words])


def _ask(
    call: Call, name: str, ask: Callable[[Scans], Awaitable[_Found]], what: str = ""
) -> _Found:
    """Ask or, where `what` says what that does, act."""

    async def ask_scans(namespace: Namespace) -> _Found:
        from groupflow.operate.scans import Scans

        try:
            return await ask(Scans(namespace))
        except KeyError:
            raise _unknown(name) from None

    return call.act(what, ask_scans, scan=name) if what else call.ask(ask_scans)


def _unknown(name: str) -> typer.Exit:
    return failed(f"there is no scan {name!r}: `groupflow scans` lists them")


def _print(found: Sequence[ScanStory]) -> None:
    names = ("scan", "shards", "running", "idle", "done", "deferred", "dead", "last pass")
    rows = []
    for each in found:
        numbers = (each.shards, each.running, each.idle, each.rows_done, each.rows_deferred)
        shown = [f"{number:,}" for number in (*numbers, each.rows_dead)]
        rows.append((each.name, *shown, moment(each.last_pass) or "never"))
    say_in_columns(names, *rows)
    for each in found:
        if each.changing_to is not None:
            say(f"{each.name}: its shards end, and then there are {each.changing_to}")
        if each.stopped:
            shards = "1 shard is" if each.stopped == 1 else f"{each.stopped:,} shards are"
            say(f"{each.name}: {shards} stopped; see `groupflow scans show {each.name}`")
        if each.trouble:
            say(f"{each.name}: can't fetch: {each.trouble}")
