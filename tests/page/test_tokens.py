"""Tokens with names: how one replaces another, and what can't be one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from starlette.datastructures import Headers
from structlog.testing import capture_logs

from groupflow.core.errors import ConfigError
from groupflow.ops.page import access
from groupflow.ops.page.access import Tokens
from groupflow.settings.model import Http
from tests.page.world import TOKEN

OLD, NEW = "the-old-token-of-the-courier", "the-new-token-of-the-courier"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The couriers', which is looked at each time."""
    monkeypatch.setattr(access, "LOOK", 0.0)
    (tmp_path / "couriers").write_text(OLD)
    return tmp_path / "couriers"


def _couriers(file: Path) -> Tokens:
    named = {"couriers": {"token_file": str(file), "rights": ["publish"]}}
    return Tokens(Http.model_validate({"token": TOKEN, "tokens": named}))


def _names(found: Tokens, *given: str) -> list[str | None]:
    holders = [found.holder(Headers({"authorization": f"Bearer {each}"})) for each in given]
    return [holder.name if holder else None for holder in holders]


def test_one_replaces_the_other(file: Path) -> None:
    found = _couriers(file)
    assert _names(found, OLD, NEW) == ["couriers", None]
    file.write_text(f"{OLD}\n{NEW}\n")
    assert _names(found, OLD, NEW) == ["couriers", "couriers"]
    file.write_text(NEW)
    assert _names(found, OLD, NEW, TOKEN) == [None, "couriers", "operator"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "token"),
        ("short", "at least 16"),
        (f"{OLD} {NEW} {TOKEN}x", "token"),
        (TOKEN, "token"),
        (None, "can't be read"),
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing(
    file: Path, content: str | None, words: str
) -> None:
    """A daemon that begins with it is refused, as is one whose own token comes from such a file."""
    found = _couriers(file)
    file.unlink()
    if content is not None:
        file.write_text(content)
    with capture_logs() as lines:
        assert _names(found, OLD) == ["couriers"]
    (line,) = lines
    assert line["event"] == "http.tokens_kept"
    assert OLD not in str(line)
    assert TOKEN not in str(line)
    with pytest.raises(ConfigError, match=words):
        _couriers(file)
    if content in ("short", None):
        with pytest.raises(ConfigError, match=words):
            Http(token_file=str(file)).read_holders()


@pytest.mark.parametrize(
    "table",
    [
        {"rights": ["look"]},
        {"token": OLD, "rights": []},
        {"token": OLD, "rights": ["fly"]},
        {"token": OLD, "token_file": "x", "rights": ["look"]},
        {"token": "short", "rights": ["look"]},
    ],
)
def test_a_table_that_is_none(table: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Http.model_validate({"tokens": {"couriers": table}})
