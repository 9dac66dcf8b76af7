"""The options that several verbs share, and how they print: what people read is made safe here."""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import orjson
import typer
from typer.core import TyperCommand, TyperGroup

from groupflow.core.masking import plain_json, plain_text

if TYPE_CHECKING:
    from groupflow.operate.corrections import Correction
    from groupflow.operate.tasks import Choice


class PlainVerb(TyperCommand):
    """A verb whose help and errors have no words of Python, nor of the library that parses it."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The parts of its usage: what is optional is in brackets, the rest in none."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write what it takes."""
        rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for each in self.get_params(ctx):
            if record := each.get_help_record(ctx):
                # The library names an argument's type too, which tells something of a choice alone.
                name, _, kind = record[0].partition(" <")
                shown = f"{name} {kind.rstrip('>')}" if "|" in kind else name
                rows[each.param_type_name].append((shown, record[1]))
        for kind, records in rows.items():
            if records:
                with formatter.section(f"{kind.title()}s"):
                    formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what it was given; of what can't be read, say what is wanted."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            if isinstance(error.__cause__, ValidationError):
                fault = error.__cause__.errors()[0]
                said = fault["msg"].removeprefix("Value error, ").partition(", unable to")[0]
                said = said.replace("Input", repr(fault["input"])).replace("a valid", "a")
                wanted = getattr(error.param, "help", None) or ""
                error.message = (
                    f"{said.replace('a integer', 'a whole number').rstrip('.')}. {wanted}"
                )
            raise


class FullHelp(TyperGroup):
    """A group of verbs whose help shows each one's first sentence whole, however long it is."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that is named; where it is one of other groups, the error names these."""
        if args and self.get_command(ctx, args[0]) is None:
            root = ctx.find_root().command
            groups = {"groupflow": root}
            groups |= {f"groupflow {name}": each for name, each in root.commands.items()}
            found = [
                f"`{name} {args[0]}`"
                for name, each in groups.items()
                if args[0] in getattr(each, "commands", ())
            ]
            if found:
                ctx.fail(f"No such command {args[0]!r}; there is {', '.join(found)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of verbs."""
        rows = [
            (name, command.get_short_help_str(limit=10_000))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def option(spelling: str, help: str, **more: Any) -> Any:
    """An option as its help shows it: its names and, where it has one, its value's."""
    names = [word for word in spelling.split() if word.startswith("-")]
    value = next((word for word in spelling.split() if word not in names), None)
    return typer.Option(*names, metavar=value, help=help, **more)


def argument(name: str, help: str, **more: Any) -> Any:
    """An argument under the name by which its help calls it."""
    return typer.Argument(metavar=name, help=help, **more)


def _or_before_the_verb(context: typer.Context, file: Path | None) -> Path | None:
    """The file that was named here, or else in front of the verb."""
    named: Path | None = context.find_root().params.get("config")
    return file or named


ConfigOption: TypeAlias = Annotated[
    Path | None,
    option(
        "--config -c FILE",
        "The TOML file. Without it: groupflow.toml here, else "
        "/etc/groupflow/groupflow.toml, else the defaults.",
        callback=_or_before_the_verb,
    ),
]
AppOption: TypeAlias = Annotated[
    str | None, option("--app MODULE:ATTR", "The Python handlers, such as handlers:app.")
]
JsonOption: TypeAlias = Annotated[bool, option("--json", "Print one JSON value instead of text.")]
IdsArgument: TypeAlias = Annotated[list[str] | None, argument("ID", "Which, by id.")]
YesOption: TypeAlias = Annotated[bool, option("--yes -y", "Don't ask.")]


@dataclass(frozen=True)
class ChoiceOptions:
    """Which task is meant, of several that have one id."""

    tenant: Annotated[
        str | None,
        option(
            "--tenant T",
            "Of several tasks that have one id: the one of this tenant; empty: of none.",
        ),
    ] = None
    partition: Annotated[
        int | None,
        option(
            "--partition N", "Of several tasks that have one id: the one in this partition.", min=0
        ),
    ] = None

    def refuse_without(self, ids: Sequence[str] | None) -> None:
        """Refuse a choice where no ids are named.

        Raises:
            typer.BadParameter: there is one.
        """
        if not ids and (self.tenant, self.partition) != (None, None):
            raise typer.BadParameter(
                "--tenant and --partition choose among tasks of an id: name ids."
            )

    @property
    def choice(self) -> Choice:
        from groupflow.operate.tasks import Choice

        return Choice(self.tenant, self.partition)


def say(
    line: str = "", *, lead: str = "", err: bool = False, bold: bool = False, fg: str | None = None
) -> None:
    """Write one line, which may hold strangers' text: what isn't printable is escaped.

    Before it stands `lead`: our own words, which may have colours.
    """
    text = plain_text(line)
    typer.echo(lead + (typer.style(text, fg=fg, bold=True) if bold else text), err=err)


def cut(number: int, more: object, ways: str = "--limit N") -> list[str]:
    """What stderr says of a list of so many, if there is more: how to see that."""
    return [f"{number:,} are shown, and there may be more: {ways}"] if more else []


def say_in_columns(titles: Sequence[str], *rows: Sequence[str]) -> None:
    """Write rows below their titles."""
    shown = [[plain_text(cell) for cell in row] for row in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for number, row in enumerate(shown):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip(), bold=number == 0)


def print_json(value: Any) -> None:
    """Print one JSON value on stdout, safe for a terminal."""
    typer.echo(plain_json(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))


def print_entry(lead: str, entry: Any) -> None:
    """Print an entry of a JSON list that is written as it is read."""
    typer.echo(f"{lead}\n{plain_json(orjson.dumps(entry).decode())}", nl=False)


def confirm(question: str, *, deletes: bool) -> None:
    """Ask the user. Without a terminal, refuse what deletes.

    Raises:
        typer.Abort: the answer is no.
        typer.BadParameter: it deletes, and there is no terminal to ask on.
    """
    if sys.stdin.isatty():
        typer.confirm(plain_text(question), abort=True)
    elif deletes:
        raise typer.BadParameter(
            f"{plain_text(question)} This is no terminal to ask at: give --yes."
        )


def user_name() -> str:
    """Who runs the verb: the user's name, or the number of one that has none, as in a container."""
    try:
        return plain_text(getpass.getuser())
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def moment(seconds: float | None) -> str | None:
    """Unix seconds as people read them, in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def attempt_lines(errors: Sequence[dict[str, Any]], indent: str = "  ") -> Iterator[str]:
    """Failed attempts, the oldest first; what was no attempt of a daemon has less in it."""
    for error in errors:
        facts = [f"attempt {error.get('attempt', '-')}"]
        if "at" in error:
            facts += [str(moment(error["at"])), f"{error['seconds']:.3f} s on {error['daemon']}"]
        said = f": {error['message']}" if error["message"] else ""
        yield f"{indent}{', '.join(facts)}: {error['error']}{said}"
        for line in error.get("traceback", "").splitlines():
            yield f"{indent}    {line}"


def correction_lines(corrections: Sequence[Correction], indent: str = "  ") -> Iterator[str]:
    """Bodies that a task had before, the oldest first."""
    for each in corrections:
        by = f" by {each.by}" if each.by else ""
        cut = ", its beginning" if each.is_cut else ""
        packed = "" if each.body_base64 is None else ", as base64"
        yield f"{indent}body corrected {moment(each.at)}{by}; before{cut}{packed}:"
        yield f"{indent}    {each.body if each.body_base64 is None else each.body_base64}"
        yield f"{indent}    ({each.bytes} bytes, SHA-256 {each.sha256})"


_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d|days?)\s*", re.ASCII)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
YEAR = 366 * 86400.0


def seconds_for(text: str, option: str = "--for") -> float:
    """The seconds of ``30s``, ``10m``, ``10 min``, ``2h`` or ``1d``, which an option was given.

    Raises:
        typer.BadParameter: it can't be read, or is longer than a year.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{option} {text!r} is no time; write 30s, 10m, 2h or 1d.")
    seconds = float(found[1]) * _UNITS[found[2][0]]
    if not 0 < seconds <= YEAR:
        raise typer.BadParameter(f"{option} {text!r} is not between 0 s and a year.")
    return seconds
