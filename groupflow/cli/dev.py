"""`groupflow dev` and `demo`: the first ten minutes, on private servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groupflow.cli.options import ConfigOption

verbs = typer.Typer()


@verbs.command("dev")
def dev(
    *,
    app: Annotated[
        str,
        typer.Option("--app", metavar="MODULE:ATTR", help="The handlers, such as handlers:app."),
    ],
    config: ConfigOption = None,
    page: Annotated[
        bool,
        typer.Option("--page/--no-page", help="Open the page where there is a browser."),
    ] = True,
) -> None:
    """Run an application on private servers; a save restarts it, each task prints a line.

    Needs no configuration and no server that runs: RabbitMQ and Redis are started privately and
    are gone at the end, with all that was in them. Rules are taken from groupflow.toml where there
    is one; its servers and its page's address are not.

    For example:

      groupflow dev --app handlers:app
    """
    from groupflow.dev.session import has_display, run_dev

    run_dev(app, config, shows_page=page and has_display())


@verbs.command("demo")
def demo(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Use the servers that this TOML file names, under names of the demo's own, "
            "instead of private ones.",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave all of it running, and say where its page is.")
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
