"""Files that others can write, or whose secrets they can read, are told of with mode and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupflow.doctor.local import examine_files
from groupflow.settings.load import find_sources, load_settings

PLAIN = "[workers]\nplain = 3\n"
SECRETS = [
    '[redis]\nurl = "redis://:hunter2@h/0"\nallow_plaintext = true\n',
    '[rabbitmq]\nurl = "amqp://T0KEN@localhost/"\n',
    '[http]\ntoken = "0123456789abcdef0"\n',
    '[handlers.t]\nhttp = "https://h/x?access_token=T0KEN"\n',
    '[handlers.t]\nexec = ["x", "--password=T0KEN"]\n',
]
OPEN = [
    PLAIN,
    '[rabbitmq]\nurl = "amqp://guest:guest@localhost/"\n',
    '[http]\ntoken = ""\n',
    '[handlers.t]\nhttp = "http://h/x"\n',
    '[handlers.t]\nexec = ["./import", "--fast", "--encoding=utf8"]\n',
]


def findings(path: Path | None) -> list[tuple[str, str, str]]:
    checks = examine_files(load_settings(path), find_sources(path))
    assert {check.name for check in checks} == {"files"}
    return [(check.verdict, check.found, check.remedy) for check in checks]


def of_file(folder: Path, text: str, mode: int) -> list[tuple[str, str, str]]:
    file = folder / "groupflow.toml"
    file.write_text(text)
    file.chmod(mode)
    return findings(file)


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o602, 0o660, 0o622])
def test_a_configuration_that_others_can_write(tmp_path: Path, mode: int) -> None:
    ((verdict, found, remedy),) = of_file(tmp_path, PLAIN, mode)
    assert verdict == "warn"
    assert f"groupflow.toml, the configuration, has mode {mode:04o}" in found
    assert ("every user" if mode & 0o002 else "its group") in found
    assert found.endswith("can write it")
    assert remedy == f"chmod go-w {tmp_path}/groupflow.toml."


@pytest.mark.parametrize("text", [*SECRETS, *OPEN])
def test_a_configuration_with_secrets_that_others_can_read(tmp_path: Path, text: str) -> None:
    if text in OPEN:
        assert [found[0] for found in of_file(tmp_path, text, 0o644)] == ["ok"]
        return
    ((verdict, found, remedy),) = of_file(tmp_path, text, 0o644)
    assert verdict == "warn"
    assert "0644: every user here can read its secrets" in found
    assert remedy.startswith(f"chmod 600 {tmp_path}/groupflow.toml")
    assert [found[0] for found in of_file(tmp_path, text, 0o640)] == ["ok"]
    ((_, found, _),) = of_file(tmp_path, text, 0o666)
    assert found.endswith("can write it and read its secrets")


def test_secret_files_and_their_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o755)
    secret = folder / "groupflow_http__token"
    secret.write_text("0123456789abcdef0")
    secret.chmod(0o644)
    monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(folder))
    ((_, found, _),) = findings(None)
    assert f"{secret}, the secret file, has mode 0644" in found
    secret.chmod(0o600)
    assert [found[0] for found in findings(None)] == ["ok"]
    folder.chmod(0o777)
    ((_, found, remedy),) = findings(None)
    assert "the secrets directory, has mode 0777: every user here can write it" in found
    assert remedy == f"chmod go-w {folder}."
    folder.chmod(0o1777)
    assert [found[0] for found in findings(None)] == ["ok"]


def test_files_that_settings_name(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0")
    token.chmod(0o604)
    ((_, found, _),) = of_file(tmp_path, f'[http]\ntoken_file = "{token}"\n', 0o644)
    assert f"{token}, the secret file, has mode 0604" in found
