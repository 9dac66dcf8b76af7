"""The options that several verbs share, and how they print JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import orjson
import typer

from groupflow.core.escaping import plain_json, plain_text

ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The TOML file. Without it: groupflow.toml here, else "
        "/etc/groupflow/groupflow.toml, else the defaults.",
    ),
]
AppOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:ATTR", help="The Python handlers, such as handlers:app."),
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON value instead of text.")
]


def print_json(value: Any) -> None:
    """Print one JSON value on stdout, safe for a terminal."""
    typer.echo(plain_json(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))


def confirm(question: str, *, deletes: bool) -> None:
    """Ask a person; where nobody sits at a terminal, what deletes is not done.

    Raises:
        typer.Abort: the answer is no.
        typer.BadParameter: it deletes, and nobody can be asked.
    """
    if sys.stdin.isatty():
        typer.confirm(plain_text(question), abort=True)
    elif deletes:
        raise typer.BadParameter(
            f"{plain_text(question)} This is no terminal to ask at: give --yes."
        )
