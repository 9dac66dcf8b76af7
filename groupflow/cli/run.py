"""`groupflow run`: the daemon."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.exits import Exit, explain
from groupflow.cli.options import AppOption, ConfigOption
from groupflow.cli.safe import say
from groupflow.core.errors import ConfigError, GroupflowError, Problem, SessionReplaced

if TYPE_CHECKING:
    from groupflow.daemon import Daemon

verbs = typer.Typer()


class Only(StrEnum):
    """Half a daemon: machines that only take in, machines that only work."""

    INTAKE = "intake"
    WORKERS = "workers"


@verbs.command("run")
def run(
    *,
    config: ConfigOption = None,
    app: AppOption = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Unique among daemons. Restarted under the same name, it takes up at once what "
            "it held. Without it: host and pid, and the lease has to run out first.",
        ),
    ] = None,
    only: Annotated[
        Only | None, typer.Option("--only", help="Only take messages in, or only work on tasks.")
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
    from groupflow.cli.app_loading import load_app
    from groupflow.core.app import App
    from groupflow.daemon import Daemon
    from groupflow.ops.logs import configure_logging
    from groupflow.settings.load import load_settings

    settings = load_settings(config)
    configure_logging(settings.log.level, settings.log.format)
    handlers = load_app(app) if app else App()
    if only is not Only.INTAKE and not (handlers.types or handlers.scans or settings.handlers):
        raise ConfigError([_no_handlers(app)])
    checked = _checked_name(name or _default_name())
    load = partial(load_settings, config)
    code = _run_loop(
        lambda: Daemon(settings, handlers, checked, only.value if only else None, load)
    )
    sys.exit(code)


def _no_handlers(app: str | None) -> Problem:
    remedy = (
        "It has no handlers and no scans: decorate one with @app.handler(type)."
        if app
        else "Nothing can run without handlers: give --app MODULE:ATTR, or --only intake."
    )
    return Problem("--app", app or "", remedy)


def _default_name() -> str:
    """The name of a daemon that was given none: no other process has it.

    Only a daemon with a `--name` of its own takes its tasks up again at once when it is restarted;
    one without leaves them to whoever comes first once the lease has run out.
    """
    return f"{socket.gethostname()}-{os.getpid()}"


def _checked_name(name: str) -> str:
    if not name.isprintable() or len(name) > 128:  # noqa: PLR2004
        remedy = "A daemon's name has at most 128 printable characters."
        raise ConfigError([Problem("--name", ascii(name), remedy)])
    return name


def _run_loop(build: Callable[[], Daemon]) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(build))


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
    except SessionReplaced as error:
        # Started again it would only take the name back, and so on for ever.
        say(f"groupflow: {error}", err=True)
        code = Exit.CONFIG
    except Exception as error:
        if not daemon.has_running_handlers:
            raise
        # Nobody further up gets to say what ended it.
        if isinstance(error, GroupflowError):
            code = explain(error)
        else:
            traceback.print_exception(error)
            code = Exit.FAILED
    if daemon.has_running_handlers:
        # A thread can't be stopped, and the interpreter would wait for it. Its task has been
        # handed over, or will be once the lease is over: it has to end with this process, now.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _has_terminal() -> bool:
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):  # no stdin, or a closed one
        return False


def _on_hang_up(daemon: Daemon, had_terminal: bool) -> None:
    """A supervisor asks for a reload by it; a terminal that is closed means that nobody watches."""
    if had_terminal and not _has_terminal():
        daemon.stop()
    else:
        daemon.reload()


def _leave_at_once(number: signal.Signals) -> None:
    """What runs is taken over as after a crash."""
    say("groupflow: second signal, leaving at once", err=True)
    os._exit(128 + number)
