"""`groupflow run`, `page`, `dev`, `demo`: what runs until it is told to stop, or is done.

The daemon; the page and its API, in a process of their own; and the first ten minutes, on private
servers.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from groupflow.cli.exits import Exit, explain
from groupflow.cli.options import AppOption, PlainVerb, option, say
from groupflow.cli.verb import Call, verb
from groupflow.core.errors import ConfigError, GroupflowError, NameTaken, Problem

if TYPE_CHECKING:
    from groupflow.daemon import Daemon

verbs = typer.Typer()
# What a write raises where no one reads it: whoever did may have ended by the same Ctrl-C.
_GONE = (OSError, ValueError, AttributeError)


@verb(verbs, "run", has_json=False)
def run(
    call: Call,
    *,
    app: AppOption = None,
    name: Annotated[
        str | None,
        option(
            "--name NAME",
            "Unique among daemons. Restarted under the same name, it takes up at once what "
            "it held. Without it: host and pid, and the lease has to run out first.",
        ),
    ] = None,
    only: Annotated[
        Literal["intake", "workers"] | None,
        option("--only", "Only take messages in, or only work on tasks."),
    ] = None,
) -> None:
    """Take messages in from RabbitMQ and run their tasks, until told to stop.

    SIGTERM or SIGINT ends it in order: running tasks may end within workers.drain, the rest is
    handed back. Another one ends it at once, unless it comes within a second: then it is the same
    wish, sent twice. SIGHUP, or `groupflow reload`, makes it take a changed configuration over.

    For example:

      groupflow run --config groupflow.toml --app handlers:app --name $(hostname)

      groupflow run --only intake
    """
    import uvloop

    from groupflow.cli.app_loading import load_app
    from groupflow.core.app import App
    from groupflow.daemon import Daemon
    from groupflow.ops.logs import configure_logging

    settings = call.settings
    configure_logging(settings.log.level, settings.log.format)
    handlers = load_app(app) if app else App()
    if only != "intake" and not (handlers.types or handlers.scans or settings.handlers):
        raise ConfigError([_no_handlers(app)])
    # Only a daemon with a name of its own takes its tasks up again at once when it is restarted;
    # one without leaves them to the daemon that first sees its lease run out.
    checked = _checked_name(name or f"{socket.gethostname()}-{os.getpid()}")
    sys.exit(uvloop.run(_serve(lambda: Daemon(settings, handlers, checked, only, call.load))))


def _no_handlers(app: str | None) -> Problem:
    remedy = (
        "It has no handlers and no scans: decorate one with @app.handler(type)."
        if app
        else "Nothing can run without handlers: give --app MODULE:ATTR, or --only intake."
    )
    return Problem("--app", app or "", remedy)


def _checked_name(name: str) -> str:
    if not name.isprintable() or len(name) > 128:  # noqa: PLR2004
        remedy = "A daemon's name has at most 128 printable characters."
        raise ConfigError([Problem("--name", ascii(name), remedy)])
    return name


async def _serve(build: Callable[[], Daemon]) -> int:
    from groupflow.ops.signals import Ending

    daemon = build()
    # What is here by now stays. To look through it for garbage again and again would stop all
    # workers, for 70 ms at a time.
    gc.collect()
    gc.freeze()
    loop = asyncio.get_running_loop()
    Ending(daemon.stop, _leave_at_once).listen((signal.SIGTERM, signal.SIGINT))
    loop.add_signal_handler(signal.SIGHUP, _on_hang_up, daemon, _has_terminal())
    code = Exit.FINE
    try:
        await daemon.run()
    except NameTaken as error:
        # A supervisor that started it again, and again, would change nothing.
        say(f"groupflow: {error}", err=True)
        code = Exit.CONFIG
    except Exception as error:
        if not daemon.has_running_handlers:
            raise
        # The process exits below, before a caller could report the error.
        code = Exit.FAILED
        with suppress(*_GONE):
            if isinstance(error, GroupflowError):
                code = explain(error)
            else:
                traceback.print_exception(error)
    if daemon.has_running_handlers:
        # A thread can't be stopped, and the interpreter would wait for it. Its task has been
        # handed over, or will be once the lease is over: it has to end with this process, now.
        for stream in (sys.stdout, sys.stderr):
            with suppress(*_GONE):
                stream.flush()
        os._exit(code)
    return code


def _has_terminal() -> bool:
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):  # no stdin, or a closed one
        return False


def _on_hang_up(daemon: Daemon, had_terminal: bool) -> None:
    """A supervisor asks for a reload by it; a closed terminal means stop."""
    if had_terminal and not _has_terminal():
        daemon.stop()
    else:
        daemon.reload()


def _leave_at_once(number: signal.Signals) -> None:
    """What runs is taken over as after a crash."""
    with suppress(*_GONE):
        say("groupflow: second signal, leaving at once", err=True)
    os._exit(128 + number)


_NICE = 10  # tasks come first where there is too little time for both
_KILLED_FIRST = "500"  # of 1000: before the daemon, where there is too little memory for both


@verb(verbs, "page", has_json=False)
def page(
    call: Call,
    *,
    channel: Annotated[
        int | None, option("--channel", "Set by `groupflow run`, which starts this.", hidden=True)
    ] = None,
) -> None:
    """Serve the page and its API for the whole cluster, without a daemon, until told to stop.

    Each `groupflow run` has a page of its own already; this one is for a machine that runs no
    tasks, or for daemons with http.listen = "". SIGHUP makes it take changed rules over.

    For example:

      groupflow page --config groupflow.toml
    """
    import uvloop

    from groupflow.page import serve_alone, serve_beside

    if channel is not None:
        _step_behind()  # once what takes long to import is there: probes may wait for it
        uvloop.run(serve_beside(channel))
        return
    settings = call.settings
    if not settings.http.listen:
        remedy = "Name the address that the page is to be at, such as 127.0.0.1:9464."
        raise ConfigError([Problem("http.listen", "", remedy)])
    settings.http.read_holders()
    uvloop.run(serve_alone(settings, call.load))


def _step_behind() -> None:
    """Give way to the daemon: in time, and in memory. Where that is refused, it is as it is."""
    with suppress(OSError):
        os.nice(_NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST, "ascii")


@verb(verbs, "dev", has_json=False)
def dev(
    call: Call,
    *,
    app: Annotated[str, option("--app MODULE:ATTR", "The handlers, such as handlers:app.")],
    page: Annotated[
        bool, option("--page/--no-page", "Open the page where there is a browser.")
    ] = True,
) -> None:
    """Run an application on private servers; a save restarts it, each task prints a line.

    Needs no configuration and no server that runs: RabbitMQ and Redis are started privately and
    are gone at the end, with all that was in them. Rules are taken from groupflow.toml where there
    is one; its servers, and its page's addresses and tokens, are not.

    For example:

      groupflow dev --app handlers:app
    """
    from groupflow.dev.session import has_display, run_dev

    run_dev(app, call.config, shows_page=page and has_display())


@verbs.command("demo", cls=PlainVerb)
def demo(
    *,
    config: Annotated[
        Path | None,
        option(
            "--config -c FILE",
            "Use the servers that this TOML file names, under names of the demo's own, "
            "instead of private ones.",
        ),
    ] = None,
    keep: Annotated[
        bool, option("--keep", "Leave all of it running, and say where its page is.")
    ] = False,
) -> None:
    """Import real rows for nine tenants with two daemons, and compare with a serial import.

    Starts RabbitMQ and Redis privately and stops them at the end. Exits with 0 only if all tables
    are equal, nothing ran out of order, and nothing was lost or run twice.

    For example:

      groupflow demo

      groupflow demo --keep
    """
    from groupflow.demo.show import run_demo

    raise typer.Exit(run_demo(config, keep=keep))
