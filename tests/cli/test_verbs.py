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
from groupflow.cli.exits import Exit
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
def test_help_has_examples_that_parse(path: tuple[str, ...]) -> None:
    shown = examples(VERBS[path])
    assert shown, "no example"
    for words in shown:
        assert tuple(words[: len(path)]) == path
        VERBS[path].make_context(" ".join(path), list(words[len(path) :]))


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_verbs_that_tell_something_have_json(path: tuple[str, ...]) -> None:
    if path[0] in TALKS_ALWAYS_JSON_OR_NEVER:
        return
    options = {option for parameter in VERBS[path].params for option in parameter.opts}
    assert {"--json", "--config"} <= options


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_option_says_what_it_is(path: tuple[str, ...]) -> None:
    for parameter in VERBS[path].params:
        if parameter.name != "help":
            assert getattr(parameter, "help", None), parameter.name


def test_verbs_write_through_one_place() -> None:
    """What they write for people goes through `say`, JSON through `print_json`: made safe there."""
    writers = {"safe.py", "options.py"}
    raw = re.compile(r"\btyper\.s?echo\(|(?<!\.)\bprint\(|\bsys\.stdout\.write\(|\bimport print\b")
    folder = Path(groupflow.cli.__file__).parent
    found = {file.name for file in folder.glob("*.py") if raw.search(file.read_text())}
    assert found == writers


def complete(shell: str, line: str) -> str:
    """What a shell would be offered behind a line."""
    words = line.split(" ")
    variables = {
        "_GROUPFLOW_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    return _groupflow(variables).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """The script is there; it offers verbs, those below `dead`, options and choices."""
    script = _groupflow({"_GROUPFLOW_COMPLETE": f"source_{shell}"})
    assert script.returncode == Exit.FINE
    assert f"complete_{shell}" in script.stdout
    for line, wanted in (
        ("groupflow st", "status"),
        ("groupflow dead re", "redrive"),
        ("groupflow top --on", "--once"),
        ("groupflow tasks run", "running"),
    ):
        if line.endswith("run"):  # a STATE is one of a few
            assert wanted in complete(shell, line)
        else:
            assert wanted in complete(shell, line), line
    assert "status" not in complete(shell, "groupflow pa")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_installed(shell: str, tmp_path: Any) -> None:
    """`--install-completion` writes into the home of whoever asks, and nowhere else."""
    variables = {
        "HOME": str(tmp_path),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
        "ZDOTDIR": str(tmp_path),
    }
    done = _groupflow(variables, "--install-completion", shell)
    assert done.returncode == Exit.FINE, done.stderr
    written = [file.read_text() for file in tmp_path.rglob("*") if file.is_file()]
    assert any("groupflow" in text for text in written)


def _groupflow(variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "groupflow", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=deadline(),
        check=False,
    )
