"""`check-config` and `route` from outside: what they print, and how they exit."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

import groupflow
from groupflow.cli import main
from groupflow.cli.bodies import split_bodies

CONFIG = Path(__file__).parents[2] / "config"

APP = """
from groupflow import App
app = App()
other = 3
@app.handler("import.contacts")
async def import_contacts(task): ...
"""


START = "from groupflow import App\napp = App()\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("GROUPFLOW_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


class Run:
    def __init__(self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._patch = patch

    def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return int(caught.value.code or 0), out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(capsys, monkeypatch)


def test_version_and_help(run: Run) -> None:
    assert run("--version") == (0, f"groupflow {groupflow.__version__}\n", "")
    shown = run("--help")[1]
    assert "check-config" in shown
    assert "…" not in shown
    assert "..." not in shown.replace("COMMAND [ARGS]...", "")
    assert run("nonsense")[0] == 2


class TestCheckConfig:
    def test_right(self, run: Run) -> None:
        code, out, _ = run("check-config", "--config", str(CONFIG / "groupflow.toml"))
        assert code == 0
        assert out.endswith("ok\n")
        assert 'url = "amqp://guest:***@localhost/"' in out
        assert str(CONFIG / "groupflow.toml") in out

    def test_the_file_may_be_named_before_the_verb(self, run: Run, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / f"{name}.toml").write_text(f'[redis]\nnamespace = "{name}"\n')
        assert 'namespace = "one"' in run("-c", "one.toml", "check-config")[1]
        assert 'namespace = "two"' in run("-c", "one.toml", "check-config", "-c", "two.toml")[1]
        assert run("--config", "none.toml", "check-config")[0] == 78

    def test_json(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GROUPFLOW_REDIS__URL", "redis://:hunter2@h/1")
        code, out, _ = run("check-config", "--json")
        report = orjson.loads(out)
        assert code == 0
        assert report["ok"] is True
        assert report["variables"] == ["GROUPFLOW_REDIS__URL"]
        assert report["settings"]["redis"]["url"] == "redis://:***@h/1"
        assert report["file"] is None

    def test_wrong(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "groupflow.toml").write_text("[workers]\nlease = 0.1\nplan = 3\n")
        code, out, err = run("check-config")
        assert code == 78
        assert out == ""
        assert "workers.lease = 0.1: Set it to at least 1" in err
        assert "workers.plain" in err
        code, out, _ = run("check-config", "--json")
        assert code == 78
        assert orjson.loads(out)["problems"][0]["setting"] == "workers.lease"

    def test_a_file_that_others_can_write_is_noted(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "groupflow.toml"
        file.write_text("[workers]\nplain = 3\n")
        file.chmod(0o666)
        code, out, _ = run("check-config")
        assert code == 0  # it can be used: its settings are right
        assert "note: groupflow.toml, the configuration, has mode 0666: every user here" in out
        assert "chmod go-w" in "".join(orjson.loads(run("check-config", "--json")[1])["notes"])

    def test_an_address_that_others_reach_is_noted(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("GROUPFLOW_HTTP__LISTEN", "0.0.0.0:9464")
        monkeypatch.setenv("GROUPFLOW_HTTP__HEALTH", "0.0.0.0:9465")
        code, out, _ = run("check-config")
        assert code == 0
        assert "note: http.listen = 0.0.0.0:9464: plain HTTP beyond this machine" in out
        assert "note: http.health = 0.0.0.0:9465: health and metrics beyond this machine" in out
        monkeypatch.setenv("GROUPFLOW_HTTP__TOKEN_FILE", "/nowhere/token")
        assert "note: it can't run here: http.token_file" in run("check-config")[1]

    def test_a_key_without_its_tenant_is_noted(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GROUPFLOW_GROUPS", '[{"key": "{entity}"}]')
        assert "note: groups[0].key doesn't name {tenant_id}" in run("check-config")[1]

    def test_rules_that_nothing_tells_apart_are_refused(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "groupflow.toml"
        file.write_text(
            '[[groups]]\napp = "crm"\nkey = "{e}:{e}"\n[[groups]]\napp = "a"\nkey = "b{y}:c{z}"\n'
        )
        code, _, error = run("check-config", "--config", str(file))
        assert code == 78
        assert "groups[1].key = 'b{y}:c{z}': Nothing tells its keys from those of" in error


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (APP, "{m}", "MODULE:ATTR"),
        (APP, "{m}:", "MODULE:ATTR"),
        (APP, "{m}_gone:app", "There is no module"),
        (APP, "{m}:nope", "has no nope"),
        (APP, "{m}:other", "of type int"),
        ("1 / 0", "{m}:app", "ZeroDivisionError: division by zero at "),
        ("import not_there_at_all", "{m}:app", "ModuleNotFoundError"),
        ("def (", "{m}:app", "SyntaxError"),
        ("raise SystemExit(3)", "{m}:app", "SystemExit: 3"),
        (START + '@app.handler("t")\ndef f(): ...\n', "{m}:app", "{m}.py:3. Correct"),
        (START + "@app.handler\ndef f(task): ...\n", "{m}:app", "{m}.py:3. Correct"),
        (START + 'app.handler("t", timeout=-1)\n', "{m}:app", "{m}.py:3. Correct"),
        (START + "import json\njson.loads('{')\n", "{m}:app", "{m}.py:4. Correct"),
    ],
)
def test_apps_that_cannot_be_loaded(
    run: Run, tmp_path: Path, source: str, target: str, said: str
) -> None:
    module = f"app_{tmp_path.name}"  # of its own: modules stay imported
    (tmp_path / f"{module}.py").write_text(source)
    code, _, err = run("check-config", "--app", target.format(m=module))
    assert code == 78
    assert "--app" in err
    assert said.format(m=module) in err
    if source.startswith("1"):
        assert f"{module}.py:1" in err


@pytest.mark.parametrize(
    ("source", "handlers", "said"),
    [
        ("", "", "groups[0].batch = 100: No handler takes more than one task"),
        ('@app.batch_handler("b")\ndef f(tasks): ...\n', "", ""),
        ("", '[handlers."c"]\nexec = ["sh"]\nbatch = 10\n', ""),
    ],
)
def test_a_batch_that_no_handler_takes(
    run: Run, tmp_path: Path, source: str, handlers: str, said: str
) -> None:
    module = f"app_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(START + source)
    rule = '[[groups]]\napp = "crm"\nkey = "{e}"\nbatch = 100\n'
    (tmp_path / "groupflow.toml").write_text(rule + handlers)
    code, _, err = run("check-config", "--app", f"{module}:app")
    assert code == (78 if said else 0), err
    assert said in err


@pytest.mark.parametrize(
    ("command", "mode", "said"),
    [
        ("./gone", None, "There is no such program"),
        ("./there", 0o644, "chmod +x"),
        ("there-is-no-such-command", None, "no such program on the PATH"),
        ("./there", 0o755, ""),
        ("sh", None, ""),
    ],
)
def test_a_command_that_cant_be_run(
    run: Run, tmp_path: Path, command: str, mode: int | None, said: str
) -> None:
    """With the application it is an error: a daemon here would fail all of its tasks."""
    module = f"app_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(APP)
    (tmp_path / "groupflow.toml").write_text(f'[handlers."t"]\nexec = ["{command}"]\n')
    if mode is not None:
        (tmp_path / "there").touch()
        (tmp_path / "there").chmod(mode)
    code, out, err = run("check-config", "--app", f"{module}:app")
    assert code == (78 if said else 0)
    assert said in err
    code, out, _ = run("check-config")
    assert code == 0  # elsewhere it may be there
    assert ("it can't run here: handlers." in out) is bool(said)


class TestRoute:
    def answers(self, run: Run, stdin: bytes, *arguments: str) -> Any:
        config = str(CONFIG / "tenants.toml")
        code, out, _ = run("route", "--config", config, "--json", *arguments, stdin=stdin)
        ways = orjson.loads(out)
        assert code == (1 if any(way["reason"] for way in ways) else 0)
        return ways

    def test_a_grouped_message(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "route_handlers.py").write_text(APP)
        body = b'{"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact"}'
        (answer,) = self.answers(
            run, body, "--type", "import.contacts", "--app", "route_handlers:app"
        )
        assert answer == {
            "queue": "grouped",
            "type": "import.contacts",
            "app": "crm",
            "tenant": "42",
            "group": "contact:42",
            "rule": "crm-entities",
            "handler": "route_handlers.import_contacts",
            "priority": 0.0,
            "delay": 0.0,
            "reason": None,
        }

    def test_headers_and_lines(self, run: Run) -> None:
        stdin = (
            b'{"type":"t","app_name":"merge","tenant_id":1}\n\nnot json\n'
            b'{"type":"u","tenant_id":1}\n'
        )
        one, two, three = self.answers(run, stdin, "--header", "x-merge-key=a=b")
        assert one["group"] == "merge:a=b:1"
        assert one["handler"] == "none in this configuration"
        assert two["queue"] == "dead letter"
        assert two["reason"].startswith("not JSON")
        assert three["queue"] == "plain"

    def test_text_for_a_file_and_handlers_that_are_not_python(
        self, run: Run, tmp_path: Path
    ) -> None:
        (tmp_path / "in.json").write_text(
            '[{"type": "import.orders"}, {"type": "import.invoices"}]'
        )
        code, out, _ = run("route", "in.json", "--config", str(CONFIG / "groupflow.toml"))
        assert code == 0
        assert out.splitlines() == [
            "1: plain, type import.orders, handler exec import-orders",
            "2: plain, type import.invoices, handler http http://127.0.0.1:8000",
        ]

    @pytest.mark.parametrize(
        "arguments", [("nowhere.json",), ("--header", "x"), (), ("--nonsense",)]
    )
    def test_usage(self, run: Run, arguments: tuple[str, ...]) -> None:
        assert run("route", *arguments)[0] == 2


@pytest.mark.parametrize(
    ("data", "bodies"),
    [
        (b"", []),
        (b' {"a": 1}\n', [(b'{"a": 1}', "line 1")]),
        (b'\n{\n"a": 1\n}', [(b'{\n"a": 1\n}', "line 2")]),
        (b'{"a":1}\r\n\n{"a":2}', [(b'{"a":1}', "line 1"), (b'{"a":2}', "line 3")]),
        (b'[{"a": 1}, 2]', [(b'{"a":1}', "entry 1"), (b"2", "entry 2")]),
        (b"\n\xff\n{}", [(b"\xff", "line 2"), (b"{}", "line 3")]),
    ],
)
def test_splitting_bodies(data: bytes, bodies: list[tuple[bytes, str]]) -> None:
    assert [(each.raw, each.where) for each in split_bodies(data)] == bodies


def test_check_config_tells_when_schedules_are_due(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text(
        '[[schedules]]\nname = "yearly"\ncron = "30 2 1 1 *"\ntimezone = "Europe/Berlin"\n'
        'type = "t"\n[[schedules]]\nname = "often"\nevery = 30.0\ntype = "t"\n'
    )
    said = orjson.loads(run("check-config", "--config", str(file), "--json")[1])
    yearly, often = said["schedules"]["yearly"], said["schedules"]["often"]
    assert [each[4:] for each in yearly] == ["-01-01 02:30:00+01:00"] * 3
    assert [each[17:19] in ("00", "30") for each in often] == [True] * 3
    text = run("check-config", "--config", str(file))[1]
    assert f"schedule yearly: next {', '.join(yearly)}\n" in text


# Each: a time zone as TOML has it, and what stands in the refusal.
ZONES = [
    ("Europa/Berlin", 'Did you mean "Europe/Berlin"'),
    ("europe/berlin", 'Did you mean "Europe/Berlin"'),
    ("Europe", "Did you mean"),  # a folder of zones
    ("../Europe/Berlin", "The schedule 'nightly' has no time zone"),
    ("/etc/localtime", "The schedule 'nightly' has no time zone"),
    ("", 'Write "UTC"'),
    ("zone.tab", 'Write "UTC"'),
    ("a\\u0000b", 'Write "UTC"'),
    ("x" * 5000, 'Write "UTC"'),
]


@pytest.mark.parametrize("verb", ["check-config", "run"])
@pytest.mark.parametrize(("zone", "said"), ZONES, ids=[zone[:20] for zone, _ in ZONES])
def test_a_time_zone_that_does_not_exist_is_refused(
    run: Run, tmp_path: Path, verb: str, zone: str, said: str
) -> None:
    file = tmp_path / "schedules.toml"
    text = f'name = "nightly"\ntype = "t"\ncron = "0 3 * * *"\ntimezone = "{zone}"\n'
    file.write_text(f"[[schedules]]\n{text}")
    code, _, err = run(verb, "--config", str(file))
    assert code == 78
    assert "schedules[0].timezone = " in err
    assert said in err


def test_all_time_zones_of_a_long_configuration_are_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    entry = '[[schedules]]\nname = "n{}"\ntype = "t"\nevery = 1.0\ntimezone = "Europa/Berlin"\n'
    file.write_text("".join(entry.format(number) for number in range(100)))
    code, _, err = run("check-config", "--config", str(file))
    assert (code, err.count("Did you mean")) == (78, 100)
