"""`groupflow top`: a live view of what waits, what runs, who runs it, what died lately."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.dead import collect
from groupflow.cli.options import option
from groupflow.cli.verb import Answer, Call, verb
from groupflow.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from groupflow.cli.top_screen import Look, View
    from groupflow.operate.namespace import Namespace

verbs = typer.Typer()

DEAD_SHOWN = 50


@verb(verbs, "top")
def top(
    call: Call,
    *,
    interval: Annotated[
        float, option("--interval -n N", "Seconds between looks.", min=0.2, max=60)
    ] = 2.0,
    once: Annotated[bool, option("--once", "Print one look and end.")] = False,
) -> Answer | None:
    """Watch totals, rates, daemons, the busiest groups and the latest dead letters.

    Keys: q ends it, s sorts groups by what waits in them or by how long they run, space holds the
    view. The groups shown are those that run and the next in line, not all that there are.

    For example:

      groupflow top

      groupflow top --interval 0.5

      groupflow top --once --json | jq '.groups[0]'
    """
    if call.as_json and not once:
        raise typer.BadParameter("Give --once as well: JSON is one look.", param_hint="--json")
    if once:
        look = call.ask(_look)
        shown = {
            "status": look.totals.as_json(),
            "groups": look.sorted("waiting"),
            "dead": [letter.as_json() for letter in look.dead],
        }
        return Answer(shown, lambda: _print_once(look))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise typer.BadParameter("This is no terminal: give --once.")
    call.ask(lambda namespace: _watch(namespace, interval))
    return None


async def _look(namespace: Namespace) -> Look:
    from groupflow.cli.top_screen import Look
    from groupflow.operate.busy import read_busy
    from groupflow.operate.totals import read_totals

    totals, letters = await read_totals(namespace), await collect(namespace, DEAD_SHOWN)
    return Look(monotonic(), totals, await read_busy(namespace), letters)


def _print_once(look: Look) -> None:
    from rich.console import Console

    from groupflow.cli.top_screen import View, draw

    console = Console(highlight=False)
    height = console.height if console.is_terminal else 24
    console.print(draw(View(now=look, is_once=True), console.width, height))


async def _watch(namespace: Namespace, interval: float) -> None:
    """Look and draw until the user presses q."""
    from rich.console import Console
    from rich.live import Live

    from groupflow.cli.top_screen import View, draw

    console = Console(highlight=False)
    view = View(now=await _look(namespace))
    keys: asyncio.Queue[str] = asyncio.Queue()
    with _keys_of_terminal(keys), Live(console=console, screen=True, auto_refresh=False) as live:
        next_look = monotonic() + interval
        while True:
            live.update(draw(view, console.width, console.height), refresh=True)
            key = await _next_key(keys, next_look - monotonic())
            if key in ("q", "Q", "\x03", ""):
                return
            view = view.after(key) if key else view
            if monotonic() >= next_look:
                next_look = monotonic() + interval
                view = view if view.is_held else await _looked_again(namespace, view)


async def _looked_again(namespace: Namespace, view: View) -> View:
    try:
        return view.seen(await _look(namespace))
    except StoreUnavailable as error:
        return replace(view, trouble=str(error))


async def _next_key(keys: asyncio.Queue[str], seconds: float) -> str | None:
    """A key that was pressed, ``None`` where none was; empty at the end of the input."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            return await keys.get()
    except TimeoutError:
        return None


@contextmanager
def _keys_of_terminal(keys: asyncio.Queue[str]) -> Iterator[None]:
    """Read the terminal key by key, without echo; restore it at the end, after errors too."""
    import os
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    loop = asyncio.get_running_loop()

    def read() -> None:
        text = os.read(file, 64).decode(errors="replace")
        if not text:
            loop.remove_reader(file)
            keys.put_nowait("")
        for key in text:
            keys.put_nowait(key)

    tty.setcbreak(file)
    loop.add_reader(file, read)
    try:
        yield
    finally:
        loop.remove_reader(file)
        termios.tcsetattr(file, termios.TCSADRAIN, before)
