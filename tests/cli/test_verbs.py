"""What holds for every verb: examples that parse, help, `--json`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import groupflow.cli
from groupflow.cli import app

ROOT: Any = typer.main.get_command(app)
TALKS_ALWAYS_JSON_OR_NEVER = {"run", "page", "dev", "demo", "schema", "work"}


def verbs(group: Any = ROOT, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb with its path."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, (*above, name))
        else:
            yield (*above, name), command


VERBS = dict(verbs())


def examples(command: Any) -> list[list[str]]:
    """The command lines that a verb's help shows, without what they are piped from or to."""
    found = []
    for line in (command.help or "").partition("For example:")[2].splitlines():
        for part in line.split("|"):
            words = shlex.split(part, comments=False) if part.count("'") % 2 == 0 else []
            if words and words[0] == "groupflow":
                cut = words.index(">") if ">" in words else len(words)
                found.append(words[1:cut])
    return found


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_a_verb_explains_itself(path: tuple[str, ...]) -> None:
    """By examples that parse, and every option's help; those that tell something have JSON."""
    shown = examples(VERBS[path])
    assert shown, "no example"
    for words in shown:
        assert tuple(words[: len(path)]) == path
        VERBS[path].make_context(" ".join(path), list(words[len(path) :]))
    context = VERBS[path].context_class(VERBS[path], info_name=path[-1])
    assert not re.search(r" <\w+.*>  |\{[A-Z]|\[\[", VERBS[path].get_help(context))
    for parameter in VERBS[path].params:
        assert parameter.name == "help" or getattr(parameter, "help", None), parameter.name
        record = parameter.get_help_record(context) or ("",)
        is_named = parameter.param_type_name == "argument" or not re.search(" <[^|]*>", record[0])
        assert is_named, f"{record[0]}: its value has no name"
    options = {option for parameter in VERBS[path].params for option in parameter.opts}
    assert path[0] in TALKS_ALWAYS_JSON_OR_NEVER or {"--json", "--config"} <= options


def test_verbs_write_through_one_place() -> None:
    """What they write for people goes through `say`, JSON through `print_json`: made safe there."""
    raw = re.compile(r"\btyper\.s?echo\(|(?<!\.)\bprint\(|\bsys\.stdout\.write\(|\bimport print\b")
    folder = Path(groupflow.cli.__file__).parent
    found = {file.name for file in folder.glob("*.py") if raw.search(file.read_text())}
    assert found == {"options.py"}
