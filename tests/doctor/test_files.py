"""Files that others can write, or whose secrets they can read, are told of with mode and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupflow.core.checkup import Check
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


def findings(path: Path | None) -> list[Check]:
    checks = examine_files(load_settings(path), find_sources(path))
    assert {check.name for check in checks} == {"files"}
    return checks


def of_file(folder: Path, text: str, mode: int) -> list[Check]:
    file = folder / "groupflow.toml"
    file.write_text(text)
    file.chmod(mode)
    return findings(file)


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "mode", "found", "remedy"),
    [
        *((PLAIN, mode, "every user here can write it", "chmod go-w") for mode in (0o646, 0o622)),
        (PLAIN, 0o660, "its group can write it", "chmod go-w"),
        *((text, 0o644, "every user here can read its secrets", "chmod 600") for text in SECRETS),
        *((text, 0o666, "can write it and read its secrets", "chmod 600") for text in SECRETS),
        *((text, 0o640, "no other user", "") for text in SECRETS),
        *((text, 0o644, "no other user", "") for text in OPEN),
    ],
)
def test_a_configuration(tmp_path: Path, text: str, mode: int, found: str, remedy: str) -> None:
    (check,) = of_file(tmp_path, text, mode)
    assert found in check.found
    if not remedy:
        assert (check.verdict, check.remedy) == ("ok", "")
        return
    assert check.verdict == "warn"
    assert f"groupflow.toml, the configuration, has mode {mode:04o}: " in check.found
    assert check.remedy.startswith(f"{remedy} {tmp_path}/groupflow.toml")


def test_secret_files_and_their_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o755)
    secret = folder / "groupflow_http__token"
    secret.write_text("0123456789abcdef0")
    secret.chmod(0o644)
    monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(folder))
    (check,) = findings(None)
    assert f"{secret}, the secret file, has mode 0644" in check.found
    secret.chmod(0o600)
    assert [check.verdict for check in findings(None)] == ["ok"]
    folder.chmod(0o777)
    (check,) = findings(None)
    assert "the secrets directory, has mode 0777: every user here can write it" in check.found
    assert check.remedy == f"chmod go-w {folder}."
    folder.chmod(0o1777)
    assert [check.verdict for check in findings(None)] == ["ok"]


def test_files_that_settings_name(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0")
    token.chmod(0o604)
    (check,) = of_file(tmp_path, f'[http]\ntoken_file = "{token}"\n', 0o644)
    assert f"{token}, the secret file, has mode 0604" in check.found
