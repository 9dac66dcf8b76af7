"""Every configuration that `deploy/` and `config/` hand out is read by our own loader."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupflow.settings.load import load_settings

ROOT = Path(__file__).parents[2]


def test_they_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUPFLOW_SECRETS_DIR", raising=False)
    files = [path for top in ("config", "deploy") for path in (ROOT / top).rglob("*.toml")]
    assert len(files) >= 5
    for file in files:
        assert load_settings(file).groups or "base" in file.parts, file
