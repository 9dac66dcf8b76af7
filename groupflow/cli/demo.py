"""`groupflow demo`: real rows through real servers and two daemons, in less than a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

verbs = typer.Typer()


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
