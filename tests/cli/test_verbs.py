"""What holds for every verb: examples that parse, `--json`, completion in three shells."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import groupflow.cli
from groupflow.cli import app
from tests.deadlines import deadline

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
    for parameter in VERBS[path].params:
        assert parameter.name == "help" or getattr(parameter, "help", None), parameter.name
    options = {option for parameter in VERBS[path].params for option in parameter.opts}
    assert path[0] in TALKS_ALWAYS_JSON_OR_NEVER or {"--json", "--config"} <= options


def test_verbs_write_through_one_place() -> None:
    """What they write for people goes through `say`, JSON through `print_json`: made safe there."""
    writers = {"safe.py", "options.py"}
    raw = re.compile(r"\btyper\.s?echo\(|(?<!\.)\bprint\(|\bsys\.stdout\.write\(|\bimport print\b")
    folder = Path(groupflow.cli.__file__).parent
    found = {file.name for file in folder.glob("*.py") if raw.search(file.read_text())}
    assert found == writers


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """The script is there; it offers verbs, those below `dead`, options and choices."""
    script = _groupflow({"_GROUPFLOW_COMPLETE": f"source_{shell}"})
    assert f"complete_{shell}" in script.stdout

    def complete(line: str) -> str:
        variables = {
            "_GROUPFLOW_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        return _groupflow(variables).stdout

    for line, wanted in (
        ("groupflow st", "status"),
        ("groupflow dead re", "redrive"),
        ("groupflow top --on", "--once"),
        ("groupflow tasks run", "running"),
    ):
        assert wanted in complete(line), line
    assert "status" not in complete("groupflow pa")


def _groupflow(variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "groupflow", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=deadline(),
        check=True,
    )
