"""The documents: links lead somewhere, commands are ours, the reference is of these settings."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer

import groupflow
from groupflow.cli import app
from groupflow.settings.model import Settings

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "groupflow/**/*.md")
    for page in ROOT.glob(pattern)
)
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^]]*\]\(([^)\s]+)\)")
FILES = {"redis.conf"}  # what looks like a setting
EVENTS = {
    event
    for module in ROOT.joinpath("groupflow").rglob("*.py")
    for event in re.findall(r'log\.\w+\(\s*"([\w.]+)"', module.read_text())
}


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """What headings can be linked to, as GitHub and MyST name them."""
    headings = re.findall(r"^#{1,6} (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> Iterator[str]:
    """Every call of `groupflow` in a block for a shell, its arguments alone."""
    for language, block in FENCE.findall(page.read_text()):
        if language not in {"bash", "console", "sh", ""}:
            continue
        for line in re.sub(r"\\\n", " ", block).splitlines():
            for part in re.split(r"\||&&|;", line.partition(" #")[0]):
                words = part.strip().removeprefix("$ ")
                words = re.sub(r"^(?:[A-Z_]+=(?:\$\([^)]*\)|\S+) )+", "", words)
                if re.match(r"groupflow [a-z-]", words):
                    yield words.removeprefix("groupflow ")


@EACH
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link}: there is no {path}"
        if anchor:
            assert anchor in anchors(target), f"{link}: {target.name} has no such heading"


@EACH
def test_commands_are_ones_that_we_have(page: Path) -> None:
    """Each is parsed by the command line itself; nothing is run."""
    for line in commands(page):
        parse(shlex.split(re.sub(r"\$\([^)]*\)", "x", line)))


def parse(words: list[str]) -> None:
    """Parse a command line, down to its verb's options and arguments."""
    command: Any = typer.main.get_command(app)
    if words in (["--help"], ["--version"]):
        return
    while hasattr(command, "commands"):
        if command.invoke_without_command and (not words or words[0].startswith("-")):
            break  # the family is a verb itself
        assert words[0] in command.commands, f"there is no verb {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    try:
        command.make_context(command.name, list(words))
    except Exception as error:
        raise AssertionError(f"{command.name} {words}: {error}") from None


@EACH
def test_settings_and_files_that_are_named_exist(page: Path) -> None:
    sections = set(Settings.model_fields) - {"groups", "handlers", "schedules", "pools"}
    for span in re.findall(r"`([^`\n]+)`", prose(page)):
        if span in FILES or span in EVENTS:
            continue
        named = re.fullmatch(rf"({'|'.join(sections)})\.(\w+)", span)
        if found := named or re.fullmatch(r"GROUPFLOW_([A-Z]+)__([A-Z_]+)", span):
            section = Settings.model_fields[found[1].lower()].annotation
            assert found[2].lower() in section.model_fields, span  # type: ignore[union-attr]
        if re.fullmatch(r"(?:config|deploy|docs|groupflow|tests)/[\w@./-]+\.\w+", span):
            assert (ROOT / span).is_file(), span


@pytest.mark.parametrize(
    ("script", "page"),
    [("configuration.py", "configuration.md"), ("python_api.py", "python-api.md")],
)
def test_a_reference_is_of_this_code(script: str, page: str) -> None:
    written = runpy.run_path(str(ROOT / "docs" / script))["page"]()
    now = (ROOT / "docs" / page).read_text()
    assert now == written, f"run: .venv/bin/python docs/{script}"


def test_the_package_shows_its_names() -> None:
    """Though it imports each only when it is asked for."""
    assert {*groupflow.__all__, "__version__"} <= set(dir(groupflow))


def test_all_name_one_version_and_the_figures_that_were_measured() -> None:
    """The version is that of the code; the README's rates are those of the last measurement."""
    named = {
        (str(file.relative_to(ROOT)), version)
        for file in (ROOT / "deploy").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
        for version in re.findall(
            r"(?:groupflow:|ARG VERSION=|groupflow, newTag: )(\d+\.\d+\.\d+)", file.read_text()
        )
    }
    assert len(named) >= 5
    assert {version for _, version in named} == {groupflow.__version__}, named
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## [{groupflow.__version__}]" in changelog
    readme, measured = ((ROOT / page).read_text() for page in ("README.md", "docs/performance.md"))
    figures = re.findall(r"([\d,]+) tasks/s, one hot group ([\d,]+)", readme)
    assert len(figures) == 2
    for figure in (figure for each in figures for figure in each):
        assert f" {figure} " in measured, f"{figure}: make bench has measured another"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    for page in PAGES:
        place = page.relative_to(ROOT)
        if place.parts[0] == "groupflow" or place.name == "index.md" or "adr" in place.parts:
            continue
        from_docs = str(place.relative_to("docs")) if place.parts[0] == "docs" else f"../{place}"
        assert f"\n{from_docs.removesuffix('.md')}\n" in index, f"docs/index.md leaves out {place}"
