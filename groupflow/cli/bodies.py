"""Reading JSON bodies from a file or stdin: one object, a list of objects, or JSON Lines."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from groupflow.cli.options import argument, option
from groupflow.core.json_text import read_exactly, write_deeply

BodiesArgument: TypeAlias = Annotated[
    Path, argument("FILE|-", "JSON or JSON Lines; - or nothing reads stdin.", show_default=False)
]
HeaderOption: TypeAlias = Annotated[
    list[str] | None, option("--header NAME=VALUE", "An AMQP header; may be repeated.")
]
STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class FileBody:
    """One body of a file."""

    raw: bytes  # as it was written; an entry of a list as encoded here
    where: str  # ``line 3``, or ``entry 3`` of a list


def read_whole(file: Path) -> bytes:
    """All bytes of a file, or of stdin for ``-``.

    Raises:
        typer.BadParameter: it can't be read, or is empty.
    """
    try:
        data = sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file} can't be read: {error.strerror}") from None
    if not data.strip():
        raise typer.BadParameter(f"{'stdin' if file == STDIN else file} is empty.")
    return data


def read_bodies(file: Path) -> list[FileBody]:
    """The bodies in a file, or on stdin for ``-``.

    Raises:
        typer.BadParameter: there is none, or the file can't be read.
    """
    return split_bodies(read_whole(file))


def parse_headers(pairs: list[str] | None) -> dict[str, str]:
    """What ``--header`` gave.

    Raises:
        typer.BadParameter: one is not NAME=VALUE.
    """
    headers = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE.", param_hint="--header")
        headers[name] = value
    return headers


def split_bodies(data: bytes) -> list[FileBody]:
    """The bodies in a text; bytes stay as they were written, except the entries of a list.

    What is no JSON as a whole is taken as JSON Lines, blank lines left out; a line that is not
    JSON is a body too, since what becomes of it is the reader's question.
    """
    text = data.strip()
    if not text:
        return []
    try:
        whole = read_exactly(text)
    except (ValueError, RecursionError):
        lines = enumerate(data.split(b"\n"), start=1)
        return [FileBody(line.strip(), f"line {n}") for n, line in lines if line.strip()]
    if not isinstance(whole, list):
        return [FileBody(text, f"line {data[: data.index(text)].count(10) + 1}")]  # 10: a line feed
    return [FileBody(write_deeply(each), f"entry {n}") for n, each in enumerate(whole, start=1)]
