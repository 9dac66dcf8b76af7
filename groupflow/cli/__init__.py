"""The `groupflow` command. One file per verb family; this one joins them and ends the process.

A verb's file holds a `typer.Typer()` named `verbs` with its commands, and is listed in `_FAMILIES`
below. It imports what is heavy (settings, servers' clients) inside its verb, so that `--help`
and every other verb start fast.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO, TextIOWrapper
from typing import Annotated, NoReturn

import typer

from groupflow import __version__
from groupflow.cli.exits import Exit, explain
from groupflow.cli.options import ConfigOption, FullHelp, option, say
from groupflow.core.errors import GroupflowError

_FAMILIES = (
    *("run", "reload", "publish", "status", "top", "groups", "task", "dead"),
    *("scans", "schedules", "pools", "check", "repartition"),
)

app = typer.Typer(
    name="groupflow",
    help="Runs queued jobs in order within a group, in parallel across groups.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=FullHelp,
)
for _family in _FAMILIES:
    app.add_typer(import_module(f"groupflow.cli.{_family}").verbs)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"groupflow {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    config: ConfigOption = None,
    _version: Annotated[
        bool,
        option("--version", "Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Runs queued jobs in order within a group, in parallel across groups.

    Exit codes: 0 fine, 1 failed, 2 usage, 69 a server can't be reached, 78 bad configuration.
    """
    del config  # each verb reads it, given before its name or behind it
    # What libraries log would stand raw beside our own words; `run` sets its own log up.
    logging.getLogger().addHandler(logging.NullHandler())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit; errors that are expected end in words, not in a traceback."""
    sys.stdin = sys.stdin or TextIOWrapper(BytesIO())  # None where the caller has closed it
    given = sys.argv[1:] if arguments is None else list(arguments)
    # Neither Redis nor JSON takes one, and a verb would notice half-way.
    if odd := [each for each in given if any("\ud800" <= char <= "\udfff" for char in each)]:
        say(f"groupflow: {odd[0]}: an argument that is no UTF-8; correct it", err=True)
        sys.exit(Exit.USAGE)
    try:
        app(given, prog_name="groupflow")
    except GroupflowError as error:
        sys.exit(explain(error))
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    sys.exit(Exit.FINE)
