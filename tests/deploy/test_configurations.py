"""Every configuration that `deploy/` and `config/` hand out is read by our own loader."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupflow.settings.load import load_settings

ROOT = Path(__file__).parents[2]
FILES = sorted(path for top in ("config", "deploy") for path in (ROOT / top).rglob("*.toml"))


def test_there_are_some() -> None:
    assert len(FILES) >= 5


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_it_loads(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUPFLOW_SECRETS_DIR", raising=False)
    assert load_settings(file).groups or "base" in file.parts
