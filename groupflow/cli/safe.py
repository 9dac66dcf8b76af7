"""What the verbs write for people: the one place where it is made safe for their terminal."""

from __future__ import annotations

import typer

from groupflow.core.masking import plain_text

__all__ = ["plain_text", "say"]


def say(line: str = "", *, lead: str = "", err: bool = False) -> None:
    """Write one line, which may hold strangers' text: what isn't printable is escaped.

    Before it stands `lead`: our own words, which may have colours.
    """
    typer.echo(lead + plain_text(line), err=err)
