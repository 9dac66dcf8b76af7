"""The options that several verbs share, and how they print JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import orjson
import typer

from groupflow.core.escaping import plain_json

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
