"""What verbs that need no server say: one table of calls, how each ends, and its words."""

from __future__ import annotations

import io
import os
import shlex
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pytest

import groupflow
from groupflow.cli import main, publish
from groupflow.cli.bodies import split_bodies
from groupflow.cli.options import seconds_for, user_name
from groupflow.core.errors import StoreUnavailable
from groupflow.operate.reasons import duration

CONFIG = Path(__file__).parents[2] / "config"
START = "from groupflow import App\napp = App()\n"
APP = f'{START}other = 3\n@app.handler("import.contacts")\nasync def import_contacts(task): ...\n'
CHECK, OF_APP = "check-config", "check-config --app {m}:app"


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes:
        words: the verb and its arguments; `{m}` is the application's module, `{odd}` no UTF-8.
        exit: its exit code.
        said: what is printed, among other things: as a result, or of a failure.
        unsaid: what isn't.
        config: the configuration file.
        app: the application's source.
        variables: the environment's.
        modes: files that are there beside it, with their modes.
        stdin: what it reads; ``None`` where that is closed.
    """

    words: str
    exit: int
    said: str | tuple[str, ...] = ()
    unsaid: str = "Traceback"
    config: str = ""
    app: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    stdin: bytes | None = b""


def _schedule(zone: str) -> str:
    entry = f'name = "nightly"\ntype = "t"\ncron = "0 3 * * *"\ntimezone = "{zone}"\n'
    return f"[[schedules]]\n{entry}"


def _exec(command: str) -> str:
    return f'[handlers."t"]\nexec = ["{command}"]\n'


NO_ZONE = "The schedule 'nightly' has no time zone"
# Each: a time zone as TOML has it, and what stands in the refusal. "Europe" is a folder of zones.
ZONES = [
    *((zone, 'Did you mean "Europe/Berlin"') for zone in ("Europa/Berlin", "europe/berlin")),
    *((zone, NO_ZONE) for zone in ("../Europe/Berlin", "/etc/localtime")),
    *((zone, 'Write "UTC"') for zone in ("", "zone.tab", "a\\u0000b", "x" * 5000)),
    ("Europe", "Did you mean"),
]
BATCH = '[[groups]]\napp = "crm"\nkey = "{e}"\nbatch = 100\n'
ONE_KEY = '[[groups]]\napp = "crm"\nkey = "{e}:{e}"\n[[groups]]\napp = "a"\nkey = "b{y}:c{z}"\n'
AWAY = (
    '[redis]\nurl = "redis://:hush@127.0.0.1:1/0"\n'
    '[rabbitmq]\nurl = "amqp://guest:hush@127.0.0.1:1/"\n'
)
WRONG = "[workers]\nlease = 0.1\nplan = 3\n"
OTHERS = {"GROUPFLOW_HTTP__LISTEN": "0.0.0.0:9464", "GROUPFLOW_HTTP__HEALTH": "0.0.0.0:9465"}
CASES = [
    Case("--version", 0, f"groupflow {groupflow.__version__}"),
    Case("--help", 0, CHECK, unsaid="…"),
    Case("nonsense", 2),
    *(Case(f"{verb} {{odd}}", 2, "\\udcff: an argument that is no UTF-8") for verb in (
        "why", "task cancel a --reason", "dead list --type", "publish")),
    Case("publish", 2, "stdin is empty.", stdin=None),
    Case("cancel a", 2, "No such command 'cancel'; there is `groupflow task cancel`."),
    Case("dead why a", 2, "there is `groupflow why`."),
    Case("tasks dead", 2, ("'dead' is not one of 'queued'", "see `groupflow dead list`"),
         unsaid="Value error"),
    Case("top -n abc", 2, "'abc' should be a number. Seconds between looks.", unsaid="unable to"),
    Case("repartition x", 2, "'x' should be a whole number."),
    Case("tasks done --limit 0", 2, "'0' should be greater than or equal to 1."),
    Case("task -h", 0, "task [OPTIONS] COMMAND [ARGS]..."),
    Case("task drop --help", 0, ("drop [OPTIONS] [ID]...", "ID Which, by id.", "--partition N ")),
    Case("why --help", 0, ("why [OPTIONS] GROUP", "GROUP The group key"), unsaid="<"),
    Case("run --help", 0, "--only intake|workers"),
    Case("status -c groupflow.toml", 69, ("redis.url", "127.0.0.1:1"), unsaid="hush", config=AWAY),
    Case("publish -c groupflow.toml --type t", 69, ("rabbitmq.url", "127.0.0.1:1"), unsaid="hush",
         config=AWAY, stdin=b"{}"),
    Case("pool sync p /dev/null --url http://127.0.0.1:1", 69, "and is --url right?"),
    Case("pool sync p /dev/null -c groupflow.toml", 69, "and is http.listen right?",
         config='[http]\nlisten = "127.0.0.1:1"\n'),
    Case("schedules -c groupflow.toml run x", 2, "Put options behind the verb"),
    # check-config: the configuration
    Case(f"{CHECK} -c {CONFIG}/groupflow.toml", 0, ('url = "amqp://guest:***@localhost/"', "ok")),
    Case("-c two.toml check-config -c groupflow.toml", 0, 'namespace = "one"',
         config='[redis]\nnamespace = "one"\n'),
    Case("-c groupflow.toml check-config", 0, 'namespace = "one"',
         config='[redis]\nnamespace = "one"\n'),
    Case("--config none.toml check-config", 78),
    Case(CHECK, 78, ("workers.lease = 0.1: Set it to at least 1", "workers.plain"), config=WRONG),
    Case(CHECK, 0, "note: groupflow.toml, the configuration, has mode 0666: every user here",
         config="[workers]\nplain = 3\n", modes={"groupflow.toml": 0o666}),
    Case(f"{CHECK} --json", 0, "chmod go-w",
         config="[workers]\nplain = 3\n", modes={"groupflow.toml": 0o666}),
    Case(CHECK, 0, ("note: http.listen = 0.0.0.0:9464: plain HTTP beyond this machine",
                    "looking needs the token; no actions by this configuration: http.token is",
                    "note: http.health = 0.0.0.0:9465: health and metrics beyond this machine"),
         variables=OTHERS),
    Case(CHECK, 0, "note: it can't run here: http.token_file",
         variables={**OTHERS, "GROUPFLOW_HTTP__TOKEN_FILE": "/nowhere/token"}),
    Case(CHECK, 0, "note: groups[0].key doesn't name {{tenant_id}}",
         variables={"GROUPFLOW_GROUPS": '[{"key": "{entity}"}]'}),
    Case(CHECK, 78, "groups[1].key = 'b{{y}}:c{{z}}': Nothing tells its keys from those of",
         config=ONE_KEY),
    *(Case(verb, 78, ("schedules[0].timezone = ", said), config=_schedule(zone))
      for verb in (CHECK, "run") for zone, said in ZONES),
    # check-config: the application
    *(Case(f"{CHECK} --app {app}", 78, ("--app", said), app=APP) for app, said in (
        ("{m}", "MODULE:ATTR"), ("{m}:", "MODULE:ATTR"), ("{m}_gone:app", "There is no module"),
        ("{m}:nope", "has no nope"), ("{m}:other", "of type int"))),
    *(Case(OF_APP, 78, ("--app", said), app=source) for source, said in (
        ("1 / 0", "ZeroDivisionError: division by zero at "), ("1 / 0", "{m}.py:1"),
        ("import not_there_at_all", "ModuleNotFoundError"), ("def (", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        (f'{START}@app.handler("t")\ndef f(): ...\n', "{m}.py:3. Correct"),
        (f"{START}@app.handler\ndef f(task): ...\n", "{m}.py:3. Correct"),
        (f'{START}app.handler("t", timeout=-1)\n', "{m}.py:3. Correct"),
        (START + "import json\njson.loads('{')\n", "{m}.py:4. Correct"))),
    Case(OF_APP, 78, "groups[0].batch = 100: No handler takes more than one task",
         config=BATCH, app=START),
    Case(OF_APP, 0, config=BATCH, app=START + '@app.batch_handler("b")\ndef f(tasks): ...\n'),
    Case(OF_APP, 0, config=BATCH + '[handlers."c"]\nexec = ["sh"]\nbatch = 10\n', app=START),
    # check-config: a command. With the application it must be there; elsewhere it may be.
    *(case for command, modes, said in (
        ("./gone", {}, "There is no such program"), ("./there", {"there": 0o644}, "chmod +x"),
        ("there-is-no-such-command", {}, "no such program on the PATH"))
      for case in (Case(OF_APP, 78, said, config=_exec(command), modes=modes, app=APP),
                   Case(CHECK, 0, "it can't run here: handlers.", config=_exec(command),
                        modes=modes))),
    *(Case(words, 0, unsaid="it can't run here", config=_exec(command), modes={"there": 0o755},
           app=APP) for words in (OF_APP, CHECK) for command in ("./there", "sh")),
    # run
    Case("run", 78, "Nothing can run without handlers: give --app MODULE:ATTR"),
    Case("run --app {m}:app", 78, "It has no handlers and no scans: decorate one", app=START),
    Case(f"run --app {{m}}:app --name {'x' * 129}", 78, "at most 128 printable", app=APP),
    # route
    *(Case(f"route {words}", 2) for words in ("nowhere.json", "--header x", "", "--nonsense")),
    Case(f"route -c {CONFIG}/groupflow.toml", 0,
         ("1: plain, type import.orders, handler exec import-orders",
          "2: plain, type import.invoices, handler http http://127.0.0.1:8000"),
         stdin=b'[{"type": "import.orders"}, {"type": "import.invoices"}]'),
    # limit and pause
    *(Case(words, 2, "Name one group, or give --all.") for words in ("pause", "pause g --all")),
    *(Case(f"limit {words}", 2, said) for words, said in (
        ("group a", "a concurrency, a rate"), ("group a --concurrency 0", "concurrency of 1"),
        ("tenant a --concurrency -1", "concurrency of 0"), ("tenant a --rate fast", "Write a rate"),
        ("tenant a --rate 1/s --for soon", "is no time"),
        ("tenant a --rate 1/s --for 31d", "30 days"),
        ("tenant a --rate 1/s --off", "nothing beside"),
        ("--json group a --rate 1/s", "behind the verb"))),
    Case("scans --json show a", 2, "groupflow scans show NAME --config FILE"),
    Case("-c groupflow.toml limit group a", 2, "a concurrency, a rate", unsaid="behind the verb"),
    *(Case(f"pause g --for {text or repr(text)}", 2, "--for") for text in (
        "", "s", "30", "-1s", "0s", "1w", "1e3s", "1.2.3s", "nans", "inf", "٣s", "400d")),
    # task cancel
    *(Case(f"task cancel {words}", 2, said) for words, said in (
        ("", "one of the three"), ("a --group g", "one of the three"),
        ("--group g --type t", "one of the three"), ("--group ''", "want a name"),
        ("a --dry-run", "name no ids"), ("--type t --tenant 1", "choose among tasks"))),
    *(Case(f"dead {words}", 2, said) for words, said in (
        ("drop --cause row", "--cause 'row' names no cause: see groupflow dead causes."),
        ("drop --since 2", "--since '2' is no time; write 30s, 10m, 2h or 1d."),
        ("list --since 9999d", "--since '9999d' is not between 0 s and a year."),
        ("redrive x5 --since 2h", "not both"), ("redrive x5 --dry-run", "name no ids"),
        ("redrive x5 x6 --body -", "--body corrects one dead letter: name its id alone."),
        ("redrive --all --body -", "--body corrects one dead letter"),
        ("redrive x5 --body /nowhere/b.json", "/nowhere/b.json can't be read: No such file"))),
    # a choice is among tasks of an id
    *(Case(words, 2) for words in (
        "task drop --delayed g1 --tenant 1", "task run-now --delayed g1 --partition 1",
        "dead drop --all --partition 1", "dead redrive x5 --type t --tenant 1")),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("GROUPFLOW_") or name == "KUBERNETES_SERVICE_HOST":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


Run: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*arguments: str, stdin: bytes | None = b"") -> tuple[int, str, str]:
        opened = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", opened)
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return call


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words[:40])
def test_a_call(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    module = f"app_{tmp_path.name}"  # of its own: modules stay imported
    (tmp_path / f"{module}.py").write_text(case.app)
    (tmp_path / "groupflow.toml").write_text(case.config)
    for name, mode in case.modes.items():
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    for name, value in case.variables.items():
        monkeypatch.setenv(name, value)
    code, out, err = run(*shlex.split(case.words.format(m=module, odd="\udcff")), stdin=case.stdin)
    assert code == case.exit, err
    assert (out if code else err) == ""
    told = " ".join((out + err).replace("│", " ").split())
    for each in (case.said,) if isinstance(case.said, str) else case.said:
        assert each.format(m=module) in told
    assert case.unsaid not in told


def test_help_is_not_cut(run: Run) -> None:
    assert "..." not in run("--help")[1].replace("COMMAND [ARGS]...", "")


def test_a_time_has_a_unit() -> None:
    assert [*map(seconds_for, ("30s", "1.5m", "2h", "1d"))] == [30.0, 90.0, 7200.0, 86400.0]
    assert [*map(seconds_for, ("30 s", "10 min", "1 day"))] == [30.0, 600.0, 86400.0]


def test_a_duration_is_told_as_on_the_page() -> None:
    """In one unit, which the length chooses."""
    told = {
        -1: "0.0 s", 0.04: "0.0 s", 9.94: "9.9 s", 9.96: "10 s", 89.9: "90 s", 91.5: "2 min",
        1182.3: "20 min", 5399: "90 min", 5400: "1.5 h", 7200: "2 h", 35_999: "10 h",
        43_200: "12 h", 129_600: "2 days", 1e8: "1,157 days",
    }  # fmt: skip
    assert {length: duration(length) for length in told} == told


def test_check_config_in_json(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GROUPFLOW_REDIS__URL", "redis://:hunter2@h/1")
    report = orjson.loads(run("check-config", "--json")[1])
    assert (report["ok"], report["variables"]) == (True, ["GROUPFLOW_REDIS__URL"])
    assert report["settings"]["redis"]["url"] == "redis://:***@h/1"
    (tmp_path / "groupflow.toml").write_text(WRONG)
    report = orjson.loads(run("check-config", "--json")[1])
    assert report["problems"][0]["setting"] == "workers.lease"


def test_what_check_config_prints_can_be_its_input(run: Run, tmp_path: Path) -> None:
    """Tables within tables too, and names that TOML wants quoted."""
    file = tmp_path / "groupflow.toml"
    file.write_text(
        '[tenants."a b"]\nrate = "5/s"\n[types."import.*"]\nconcurrency = 2\n'
        '[pools.couriers]\ntypes = ["deliver"]\n[handlers."a.b"]\nexec = ["sh"]\n'
        '[[schedules]]\nname = "often"\ntype = "t"\nevery = 30.0\n'
        'body = {kind = "often", deep = {x = [1, {}]}}\n'
    )
    was = orjson.loads(run("check-config", "--json")[1])["settings"]
    file.write_text(run("check-config")[1])
    assert orjson.loads(run("check-config", "--json")[1])["settings"] == was


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
    assert f"schedule yearly: next {yearly[0][:4]}-01-01 01:30:00 UTC, " in text
    entry = '[[schedules]]\nname = "n{}"\ntype = "t"\nevery = 1.0\ntimezone = "Europa/Berlin"\n'
    file.write_text("".join(entry.format(number) for number in range(100)))
    code, _, err = run("check-config", "--config", str(file))
    assert (code, err.count("Did you mean")) == (78, 100)


def test_route_in_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "route_handlers.py").write_text(APP)

    def ways(stdin: bytes, *arguments: str) -> Any:
        config = str(CONFIG / "tenants.toml")
        code, out, _ = run("route", "--config", config, "--json", *arguments, stdin=stdin)
        found = orjson.loads(out)
        assert code == (1 if any(way["reason"] for way in found) else 0)
        return found

    body = b'{"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact"}'
    (way,) = ways(body, "--type", "import.contacts", "--app", "route_handlers:app")
    assert way == {
        "queue": "grouped", "type": "import.contacts", "app": "crm", "tenant": "42",
        "group": "contact:42", "rule": "crm-entities",
        "handler": "route_handlers.import_contacts", "priority": 0.0, "delay": 0.0,
        "expires": None, "max_queued": None, "reason": None,
    }  # fmt: skip
    lines = (
        b'{"type":"t","app_name":"merge","tenant_id":1}\n\nnot json\n{"type":"u","tenant_id":1}\n'
    )
    one, two, three = ways(lines, "--header", "x-merge-key=a=b")
    assert (one["group"], one["handler"]) == ("merge:a=b:1", "none in this configuration")
    assert (two["queue"], two["reason"].startswith("not JSON")) == ("dead letter", True)
    assert three["queue"] == "plain"


@pytest.mark.parametrize(
    ("data", "bodies"),
    [
        (b"", []),
        (b' {"a": 1}\n', [(b'{"a": 1}', "line 1")]),
        (b'\n{\n"a": 1\n}', [(b'{\n"a": 1\n}', "line 2")]),
        (b'{"a":1}\r\n\n{"a":2}', [(b'{"a":1}', "line 1"), (b'{"a":2}', "line 3")]),
        (b'[{"a": 1}, 2]', [(b'{"a":1}', "entry 1"), (b"2", "entry 2")]),
        (b"[123456789012345678901]", [(b"123456789012345678901", "entry 1")]),
        (b"\n\xff\n{}", [(b"\xff", "line 2"), (b"{}", "line 3")]),
    ],
)
def test_splitting_bodies(data: bytes, bodies: list[tuple[bytes, str]]) -> None:
    assert [(each.raw, each.where) for each in split_bodies(data)] == bodies


PUBLISH = """
[rabbitmq]
url = "amqp://guest:guest@127.0.0.1:1/"
[[groups]]
app = "crm"
key = "{entity}:{tenant_id}"
"""
GOOD = b'{"app_name": "crm", "tenant_id": 42, "entity": "contact", "type": "t"}'


@pytest.mark.parametrize(
    ("line", "arguments", "said"),
    [
        (b"not json", (), "not JSON"),
        (b'{"app_name": "crm", "tenant_id": 42, "type": "t"}', (), "entity"),
        (GOOD, ("--delay", "-1"), "delay"),
        (GOOD, ("--expires", "0"), "expires"),
        (GOOD, ("--id", "x" * 300), "255 bytes"),
        (GOOD, ("--header", "a=" + "x" * 70_000), "rabbitmq.max_headers"),
    ],
)
def test_what_would_be_a_dead_letter_is_not_published(
    run: Run, tmp_path: Path, line: bytes, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "groupflow.toml").write_text(PUBLISH)
    code, out, err = run("publish", *arguments, "--json", stdin=GOOD + b"\n\n" + line)
    assert code == 1, err
    for each in (said, "line 3: ", "nothing is published"):
        assert each in err
    told = orjson.loads(out)
    assert (told["published"], told["ids"]) == (0, [])
    assert told["refused"][-1]["where"] == "line 3"


def test_what_can_be_a_task_gets_as_far_as_the_server(run: Run, tmp_path: Path) -> None:
    """Where none is, that ends with 69. A flood of refusals is cut."""
    (tmp_path / "groupflow.toml").write_text(PUBLISH)
    both = GOOD + b"\nnot json"
    for stdin, arguments, code in (
        (GOOD, (), 69), (both, (), 1), (both, ("--partial",), 69), (GOOD, ("--header", "x"), 2),
    ):  # fmt: skip
        assert run("publish", *arguments, stdin=stdin)[0] == code
    assert run("publish", stdin=b"[]")[:2] == (0, "published nothing: the list is empty\n")
    lines = run("publish", stdin=b"no\n" * 500)[2].splitlines()
    assert len(lines) == 22
    last = ["and 480 more", "500 of 500 would be dead letters: nothing is published"]
    assert lines[-2:] == last


@pytest.mark.parametrize("end", [KeyboardInterrupt(), StoreUnavailable("gone")])
def test_publishing_that_ends_half_way_says_how_to_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    """Where RabbitMQ goes, and where the user ends it."""
    (tmp_path / "groupflow.toml").write_text(PUBLISH)

    async def publish_one(_settings: object, batch: Any) -> None:
        batch.has_begun, batch.confirmed = True, 1
        raise end

    monkeypatch.setattr(publish, "_publish", publish_one)
    _, _, err = run("publish", "--id", "mine", stdin=GOOD + b"\n" + GOOD)
    assert "1 of 2 confirmed" in err
    assert "again with --id mine, and each counts once" in err


def test_a_server_that_gives_no_answer_is_told_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a firewall: the timeout has no words of its own."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("GROUPFLOW_REDIS__URL", f"rediss://{at}/0")
        monkeypatch.setenv("GROUPFLOW_REDIS__TIMEOUT", "0.2")
        code, _, err = run("status")
    assert code == 69
    assert "no answer within 0.2 s" in err


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: no variable names it, and the system doesn't know it."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert user_name() == "user 4000000"
    monkeypatch.setenv("LOGNAME", "\udcff")  # no UTF-8, which Redis wouldn't take
    assert user_name() == "\\udcff"
