"""Tokens with names: what each lets its holder do, and how one replaces another."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from starlette.datastructures import Headers
from structlog.testing import capture_logs

from groupflow.core.errors import ConfigError
from groupflow.ops.page import tokens
from groupflow.ops.page.tokens import Tokens
from groupflow.settings.model import Http
from tests.page.world import LOOKER, PUBLISHER, TOKEN, World

OLD = "the-old-token-of-the-courier"
NEW = "the-new-token-of-the-courier"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at each time."""
    monkeypatch.setattr(tokens, "LOOK", 0.0)


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _name(found: Tokens, token: str) -> str | None:
    holder = found.holder(Headers(_bearer(token)))
    return holder.name if holder else None


def _couriers(file: Path) -> Http:
    named = {"couriers": {"token_file": str(file), "rights": ["publish"]}}
    return Http.model_validate({"token": TOKEN, "tokens": named})


def _asked(world: World, method: str, path: str, token: str, body: object = None) -> httpx.Response:
    return world.http.request(method, path, json=body, headers=_bearer(token))


@pytest.mark.parametrize(
    ("token", "may_act", "sees", "may_publish"),
    [(TOKEN, 200, True, 200), (LOOKER, 403, True, 403), (PUBLISHER, 403, False, 200)],
)
def test_rights(world: World, token: str, may_act: int, sees: bool, may_publish: int) -> None:
    resume = _asked(world, "POST", "/api/resume", token, {"group": "nobody:1"})
    assert resume.status_code == may_act
    letter = _asked(world, "GET", "/api/letter?id=dead-0", token).json()
    assert letter["is_withheld"] is not sees
    body = {"app_name": "crm", "tenant_id": 1, "id": "x"}
    published = _asked(world, "POST", "/api/tasks", token, {"body": body, "type": 5})
    assert (published.status_code == 403) is (may_publish == 403)
    assert _asked(world, "GET", "/api/access", token).json()["may_act"] is (may_act == 200)


def test_a_refusal_names_the_right_and_not_the_token(world: World) -> None:
    refused = _asked(world, "POST", "/api/resume", LOOKER, {"everything": True})
    assert refused.json()["detail"] == 'The token of looker hasn\'t the right "act".'
    assert LOOKER not in world.daemon.log.read_text()


def test_one_replaces_the_other(tmp_path: Path, looked: None) -> None:
    file = tmp_path / "couriers"
    file.write_text(OLD)
    found = Tokens(_couriers(file))
    assert [_name(found, each) for each in (OLD, NEW)] == ["couriers", None]
    file.write_text(f"{OLD}\n{NEW}\n")
    assert [_name(found, each) for each in (OLD, NEW)] == ["couriers", "couriers"]
    file.write_text(NEW)
    assert [_name(found, each) for each in (OLD, NEW, TOKEN)] == [None, "couriers", "operator"]


@pytest.mark.parametrize("content", ["", "short", f"{OLD} {NEW} {TOKEN}x", TOKEN, None])
def test_a_file_that_cannot_be_used_changes_nothing(
    tmp_path: Path, looked: None, content: str | None
) -> None:
    file = tmp_path / "couriers"
    file.write_text(OLD)
    found = Tokens(_couriers(file))
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with capture_logs() as lines:
        assert _name(found, OLD) == "couriers"
    (line,) = lines
    assert line["event"] == "http.tokens_kept"
    assert OLD not in str(line)
    assert TOKEN not in str(line)
    with pytest.raises(ConfigError):
        Tokens(_couriers(file))


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
def test_bad_tables(table: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Http.model_validate({"tokens": {"couriers": table}})
