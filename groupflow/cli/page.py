"""`groupflow page`: the page and its API, in a process of their own."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from groupflow.cli.options import ConfigOption

verbs = typer.Typer()

_NICE = 10  # tasks come first where there is too little time for both
_KILLED_FIRST = "500"  # of 1000: before the daemon, where there is too little memory for both


@verbs.command("page")
def page(
    *,
    config: ConfigOption = None,
    channel: Annotated[
        int | None,
        typer.Option("--channel", hidden=True, help="Set by `groupflow run`, which starts this."),
    ] = None,
) -> None:
    """Serve the page and its API for the whole cluster, without a daemon, until told to stop.

    Each `groupflow run` has a page of its own already; this one is for a machine that runs no
    tasks, or for daemons with http.listen = "". SIGHUP makes it take changed rules over.

    For example:

      groupflow page --config groupflow.toml
    """
    import uvloop

    from groupflow.core.errors import ConfigError, Problem
    from groupflow.page import serve_alone, serve_beside
    from groupflow.settings.load import load_settings

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if channel is not None:
            _step_behind()  # once what takes long to import is there: probes may wait for it
            runner.run(serve_beside(channel))
            return
        settings = load_settings(config)
        if not settings.http.listen:
            remedy = "Name the address that the page is to be at, such as 127.0.0.1:9464."
            raise ConfigError([Problem("http.listen", "", remedy)])
        settings.http.read_holders()
        runner.run(serve_alone(settings, partial(load_settings, config)))


def _step_behind() -> None:
    """Give way to the daemon: in time, and in memory. Where that is refused, it is as it is."""
    with suppress(OSError):
        os.nice(_NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST, "ascii")
