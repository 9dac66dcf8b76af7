"""Reading JSON bodies from a file or stdin: one object, a list of objects, or JSON Lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import orjson
import typer

BodiesArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="[FILE|-]",
        help="JSON or JSON Lines; - or nothing reads stdin.",
        show_default=False,
    ),
]
STDIN = Path("-")


def read_bodies(file: Path) -> list[bytes]:
    """The bodies in a file, or on stdin for ``-``.

    Raises:
        typer.BadParameter: there is none, or the file can't be read.
    """
    try:
        data = sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} can't be read: {error.strerror}") from None
    bodies = split_bodies(data)
    if not bodies:
        raise typer.BadParameter(f"{'stdin' if file == STDIN else file} is empty.")
    return bodies


def split_bodies(data: bytes) -> list[bytes]:
    """The bodies in a text; bytes stay as they were written, except the elements of a list.

    What is no JSON as a whole is taken as JSON Lines, blank lines left out; a line that is not
    JSON is a body too, since what becomes of it is the reader's question.
    """
    text = data.strip()
    if not text:
        return []
    try:
        whole = orjson.loads(text)
    except orjson.JSONDecodeError:
        return [line.strip() for line in text.split(b"\n") if line.strip()]
    return [orjson.dumps(each) for each in whole] if isinstance(whole, list) else [text]
