"""`publish` before anything is sent: what it refuses, and what it says of that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from groupflow.cli.exits import Exit
from tests.deadlines import deadline

CONFIG = """
[rabbitmq]
url = "amqp://guest:guest@127.0.0.1:1/"
[[groups]]
app = "crm"
key = "{entity}:{tenant_id}"
"""
GOOD = b'{"app_name": "crm", "tenant_id": 42, "entity": "contact", "type": "t"}'


def publish(folder: Path, stdin: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Where no server is: whoever gets as far as to ask for one ends with 69."""
    config = folder / "groupflow.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "groupflow", "publish", "--config", str(config), *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, timeout=deadline(), check=False
    )


@pytest.mark.parametrize(
    ("line", "arguments", "said"),
    [
        (b"not json", (), "not JSON"),
        (b"[]", (), "not a JSON object"),
        (b'{"app_name": "crm", "tenant_id": 42, "type": "t"}', (), "entity"),
        (b'{"app_name": "shop", "tenant_id": 42}', (), "type"),
        (GOOD, ("--delay", "-1"), "delay"),
        (GOOD, ("--priority", "1e30"), "priority"),
        (GOOD, ("--id", "x" * 300), "255 bytes"),
        (GOOD, ("--type", ""), "type"),
        (GOOD, ("--header", "a=" + "x" * 70_000), "rabbitmq.max_headers"),
    ],
)
def test_what_would_be_a_dead_letter_is_not_sent(
    tmp_path: Path, line: bytes, arguments: tuple[str, ...], said: str
) -> None:
    done = publish(tmp_path, GOOD + b"\n\n" + line, *arguments, "--json")
    words = done.stderr.decode()
    assert done.returncode == Exit.FAILED, words
    assert said in words
    assert "line 3: " in words
    assert "nothing is published" in words
    told = orjson.loads(done.stdout)
    assert (told["published"], told["ids"]) == (0, [])
    assert told["refused"][-1]["where"] == "line 3"


def test_what_can_be_a_task_gets_as_far_as_the_server(tmp_path: Path) -> None:
    assert publish(tmp_path, GOOD).returncode == Exit.UNAVAILABLE
    both = GOOD + b"\nnot json"
    assert publish(tmp_path, both).returncode == Exit.FAILED
    assert publish(tmp_path, both, "--partial").returncode == Exit.UNAVAILABLE


def test_a_flood_of_refusals_is_cut(tmp_path: Path) -> None:
    done = publish(tmp_path, b"no\n" * 500)
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 22
    assert lines[-2:] == [
        "and 480 more",
        "500 of 500 would be dead letters: nothing is published",
    ]


def test_a_header_is_a_name_and_a_value(tmp_path: Path) -> None:
    assert publish(tmp_path, GOOD, "--header", "x").returncode == Exit.USAGE
