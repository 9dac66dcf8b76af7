"""Commands as handlers: real processes, what they are given, and what they answer; in lines too."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from groupflow.broker.publisher import Message
from groupflow.core.app import App
from groupflow.core.errors import ConfigError
from groupflow.core.outcome import Advance, Dead, Done, Outcome, Retry
from groupflow.flow.batches import LONGEST_ANSWER, lines_of, outcomes_in
from groupflow.flow.exec_handlers import ExecBatchRunner, OutputLines
from groupflow.flow.handling import KEPT_BYTES, MESSAGE_CHARS, Failed
from groupflow.flow.process import MARK, OUTPUT_BYTES
from groupflow.flow.runners import AllRunners
from groupflow.settings.rules import HandlerRule
from tests.flow.tasks import FACTS, TASK, failure, on_uvloop, runner, shell, task, unnamed


@pytest.mark.parametrize(
    "body", [b'{"a": 1}', b"", b"\x00\xff\n\n", b"no newline at the end", b"x" * 3_000_000]
)
@on_uvloop
async def test_the_body_comes_on_stdin_byte_for_byte(tmp_path: Path, body: bytes) -> None:
    assert await shell(f"cat > {tmp_path}/body").handle(task(body=body)) == Done()
    assert (tmp_path / "body").read_bytes() == body


@pytest.mark.parametrize("script", ["exit 0", "exec <&-; exit 0", "head -c 10 > /dev/null"])
@on_uvloop
async def test_a_command_neednt_read_its_body(script: str) -> None:
    assert await shell(script).handle(task(body=b"x" * 3_000_000)) == Done()


async def variables(of: Any, tmp_path: Path) -> dict[str, str]:
    """What a command finds in its environment."""
    assert await shell(f"env -0 > {tmp_path}/env").handle(of) == Done()
    pairs = (tmp_path / "env").read_bytes().decode().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs)


@on_uvloop
async def test_the_facts_of_the_task_are_in_the_environment(tmp_path: Path) -> None:
    everything = await variables(TASK, tmp_path)
    found = {n: value for n, value in everything.items() if n.startswith("GROUPFLOW_")}
    assert len(found.pop(MARK)) == 32
    assert orjson.loads(found.pop("GROUPFLOW_CONTEXT")) == {"rows": 3}
    assert found == {f"GROUPFLOW_{name.upper()}": fact for name, fact in FACTS.items()}


@on_uvloop
async def test_what_no_command_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the daemon: its passwords, where they lie, and what its service manager lets it say."""
    names = [
        *("GROUPFLOW_REDIS__URL", "groupflow_rabbitmq__url", "GROUPFLOW_SECRETS_DIR"),
        *("CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"),
        *("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "INVOCATION_ID", "JOURNAL_STREAM"),
    ]
    for name in names:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("DATABASE", "db1")
    # A stranger's text is data to the shell.
    evil = f"$(touch {tmp_path}/owned); `id` \n'\""
    found = await variables(task(group=evil), tmp_path)
    assert (found["DATABASE"], found["GROUPFLOW_GROUP"]) == ("db1", evil)
    assert not (tmp_path / "owned").exists()
    left_out = {*names, "GROUPFLOW_TENANT", "GROUPFLOW_STAGE", "GROUPFLOW_CONTEXT"}
    assert not found.keys() & left_out
    assert "GROUPFLOW_GROUP" not in await variables(task(), tmp_path)


@on_uvloop
async def test_no_file_of_the_daemons_is_open_in_a_command() -> None:
    """A copy of a pipe's far end among them would be held by all its children."""
    beside = [os.open(os.devnull, os.O_RDONLY), os.dup(2)]
    os.set_inheritable(beside[1], True)
    look = "for n in $(seq 0 255); do [ -h /proc/$$/fd/$n ] && echo $n; done; exit 1"
    outcome = await shell(look).handle(task())
    for fd in beside:
        os.close(fd)
    assert isinstance(outcome, Failed)
    assert outcome.traceback.split() == ["0", "1", "2"]


@on_uvloop
async def test_no_password_of_a_url_is_in_its_message() -> None:
    long = "https://T0KEN@h/" + "x" * (MESSAGE_CHARS - 12)
    outcome = await failure(shell(f"echo {long} >&2; exit 1"))
    assert "KEN" not in outcome.message
    outcome = await failure(runner("/no/T0KEN/import", "--password=T0KEN"))
    assert outcome.message == "import can't be started: No such file or directory"


died = partial(Failed, "ExitCode")
MUCH, MORE, LONG = (
    f"head -c {size} /dev/zero | tr '\\0' a" for size in (3 * OUTPUT_BYTES, 600_000, LONGEST_ANSWER)
)
OVER_LONG = Failed("Answer", f"its answer is over {LONGEST_ANSWER} bytes", is_final=True)
NO_STAGE = "its answer can't be used: the stage is no text: a list of 1"


def stage_with(context: str) -> str:
    return f'printf \'{{"stage": "b", "context": "\'; {context}; printf \'"}}\''


OUTCOMES: list[Any] = [
    ("exit 0", Done()),
    ("echo fine; echo warning >&2", Done()),
    ("exit 75", Retry(reason="exit code 75")),
    ("echo table locked >&2; exit 75", Retry(reason="table locked")),
    ("echo on stdout; exit 3", died("exit code 3: on stdout")),
    ("echo out; echo no row >&2; exit 3", died("exit code 3: no row")),
    ("echo Traceback >&2; echo KeyError >&2; exit 1", died("exit code 1: KeyError")),
    ("kill -9 $$", died("signal 9")),
    ("printf '\\377' >&2; exit 1", died("exit code 1: \\xff")),
    # The next stage: the last line on stdout, and only of a command that exits 0.
    ('echo on; echo \'{"stage": "two", "context": {"a": [1]}}\'', Advance("two", {"a": [1]})),
    ('printf \'{"stage": "two", "context": 7}\\n\\n\'', Advance("two", 7)),
    ('echo \'{"stage": "two"}\' >&2', Done()),
    ('echo \'{"stage": "two"}\'; echo that was it', Done()),
    ('echo \'{"stage": "two\'', Done()),
    ("echo '[1]'", Done()),
    (f'{MUCH}; echo; echo \'{{"stage": "b"}}\'', Advance("b")),
    # As much context as Linux hands a command, in its longest words; and more.
    (stage_with(MUCH), Advance("b", "a" * 3 * OUTPUT_BYTES)),
    (stage_with(MORE), Advance("b", "a" * 600_000)),  # settling looks how large it is
    (stage_with(LONG), OVER_LONG),
    # What says progress is no output.
    ('echo \'{"stage": "two"}\'; echo \'{"progress": [1]}\'; echo', Advance("two")),
    ("echo no row; echo '{\"progress\": [1, 2]}'; exit 3", died("exit code 3: no row")),
    ('echo \'{"stage": "two"}\'; exit 75', Retry(reason='{"stage": "two"}')),
    ("echo '{\"stage\": [7]}'", Failed("ValueError", NO_STAGE, is_final=True)),
]


@pytest.mark.parametrize(("script", "outcome"), OUTCOMES)
@on_uvloop
async def test_the_exit_code_is_the_outcome(script: str, outcome: Outcome | Failed) -> None:
    assert await shell(script).handle(task()) == outcome


RESULT = '{"result": {"n": 1}, "then": [{"type": "t", "body": {"n": 12345678901234567890123}}]}'
FOLLOW = Message(b'{"n":12345678901234567890123}', "t", id="")
RESULTS: list[Any] = [
    (f"echo on; echo '{RESULT}'", Done({"n": 1}, (FOLLOW,))),
    ("echo '{\"result\": null}'", Done()),
    ("echo '{\"rows\": 3}'", Done()),
    ("echo 1e999", Done()),
    ('echo \'{"stage": "two"}\'', Advance("two")),
    (f"{LONG}; echo; echo '{RESULT}'", Done({"n": 1}, (FOLLOW,))),
    (f"printf '{{\"result\": \"'; {MUCH}; printf '\"}}'", Done("a" * 3 * OUTPUT_BYTES)),
    (f"printf '{{\"result\": \"'; {LONG}; printf '\"}}'", OVER_LONG),
    ("echo '{\"result\": 1}'; exit 3", died('exit code 3: {"result": 1}')),
]


@pytest.mark.parametrize(("script", "outcome"), RESULTS)
@on_uvloop
async def test_a_command_says_its_result(script: str, outcome: Outcome | Failed) -> None:
    """And its follow-up tasks, where its table lets it; else it says nothing."""
    found = await runner("/bin/sh", "-c", script, result=True).handle(task())
    assert unnamed([found]) == [outcome]
    if isinstance(outcome, Done):
        assert await shell(script).handle(task()) == Done()


@on_uvloop
async def test_the_last_lines_of_a_command_are_kept_beside_its_message() -> None:
    script = "echo Traceback >&2; echo '  password=hunter2' >&2; echo KeyError >&2; exit 1"
    outcome = await failure(shell(script))
    assert outcome.traceback == "Traceback\n  password=***\nKeyError"
    outcome = await failure(shell("echo KeyError >&2; exit 1"))
    assert not outcome.traceback
    outcome = await failure(shell("seq 100000; seq 100000 >&2; exit 1"))
    assert outcome.traceback.startswith("…\n")
    assert outcome.traceback.endswith("\n99999\n100000")
    assert KEPT_BYTES - 10 < len(outcome.traceback.encode()) <= KEPT_BYTES


@pytest.mark.parametrize("command", ["/no/such/program", "no-such-program", "/etc/passwd", "/"])
@on_uvloop
async def test_a_program_that_cant_be_started_is_a_failed_attempt(command: str) -> None:
    outcome = await failure(runner(command))
    name = command if command == "/" else command.rpartition("/")[2]
    assert outcome.message.startswith(f"{name} can't be started: ")
    assert not outcome.is_final


@pytest.mark.parametrize("group", ["\ud800", "x" * 200_000])
@on_uvloop
async def test_facts_that_no_environment_takes_are_a_failed_attempt(group: str) -> None:
    assert isinstance(await shell("exit 0").handle(task(group=group)), Failed)


@on_uvloop
async def test_a_missing_program_or_second_handler_is_refused(tmp_path: Path) -> None:
    app = App()
    app.handler("python")(lambda _task: None)
    with ThreadPoolExecutor(1) as threads:
        for type_, command, said in (
            ("python", "/bin/sh", "a handler for this type as well"),
            ("other", f"{tmp_path}/none", "no such program"),
        ):
            with pytest.raises(ConfigError, match=said):
                AllRunners(app, {type_: HandlerRule(exec=(command,))}, threads)
        rule = HandlerRule(exec=("/bin/sh",), timeout=1.5, max_attempts=2, interval=-3)
        runners = AllRunners(app, {"sh": rule}, threads)
        assert runners.types == ["python", "sh"]
        assert (found := runners.find("sh"))
        assert (found.timeout, found.retry.max_attempts, found.retry.interval) == (1.5, 2, -3)
        assert runners.find("none") is None
        await runners.close()


# Batches for commands and URLs: a line of JSON a task, and a line an answer.


TASKS = [replace(task(group="g", body=b'{"row": %d}' % n), id=f"t{n}") for n in range(4)]


def _shell(script: str, *, result: bool = False) -> ExecBatchRunner:
    command = ("/bin/sh", "-c", script)
    return ExecBatchRunner(HandlerRule(exec=command, batch=10, result=result), command)


def test_a_line_has_the_facts_and_the_body_as_it_was_written() -> None:
    odd = [
        replace(TASKS[0], body=b'{\n "n": 12345678901234567890123, "t": "a\\nb"}\r\n'),
        replace(TASKS[1], body=b"\x00\xff"),
        replace(TASKS[2], headers={"x": "\N{SNOWMAN}"}, context={"page": 3}, stage="second"),
    ]
    lines = lines_of(odd).splitlines()
    assert len(lines) == 3
    assert b'"n": 12345678901234567890123,' in lines[0]
    first, second, third = (orjson.loads(line) for line in lines)
    assert first["body"]["t"] == "a\nb"
    assert (second["body"], second["body_base64"]) == (None, "AP8=")
    assert (third["headers"], third["context"], third["stage"]) == (
        {"x": "\N{SNOWMAN}"}, {"page": 3}, "second"
    )  # fmt: skip
    assert {"id", "type", "group", "tenant", "attempt", "crashes", "fence"} <= set(first)


DONE = b'{"outcome": "done"}\n'
BROKEN = Failed("ExitCode", "exit code 1")


ANSWERS: list[Any] = [
    (b"", Done(), [Done()] * 4),
    (b"hello\n42\n[1]\n{broken\n{}\n", Done(), [Done()] * 4),
    (DONE * 4, Done(), [Done()] * 4),
    (DONE * 9, Done(), [Done()] * 4),
    (DONE + b'{"outcome": "dead", "reason": "no"}\n' + DONE, Done(), [Done(), Dead("no")]),
    (b'{"outcome": "dead"}', Done(), [Dead("its handler says so")]),
    (b'{"outcome": "retry", "after": 3, "scope": "group"}', Done(), [Retry(3, "", "group")]),
    (DONE + b'{"stage": "next", "context": [1]}', Done(), [Done(), Advance("next", [1])]),
    (b'{"outcome": "done", "stage": "next"}', Done(), [Advance("next", None)]),
    (DONE * 2, BROKEN, [Done(), Done(), BROKEN]),
    (DONE * 4, BROKEN, [Done()] * 4),
    (b"", BROKEN, [BROKEN]),
]


@pytest.mark.parametrize(("answer", "end", "expected"), ANSWERS)
def test_what_became_of_each(answer: bytes, end: Any, expected: list[Any]) -> None:
    assert outcomes_in(answer, 4, end) == expected


FULL = b'{"outcome": "done", "result": [1], "then": [{"body": "{}"}]}\n'


@pytest.mark.parametrize("more", [FULL, FULL.replace(b'"outcome": "done", ', b"")])
def test_a_line_may_have_a_result(more: bytes) -> None:
    made = Done([1], (Message("{}", id=""),))
    found = outcomes_in(more + DONE + more * 2, 4, Done(), has_result=True)
    assert unnamed(found) == [made, Done(), made, made]
    assert outcomes_in(FULL * 4, 4, Done()) == [Done()] * 4


ONLY_DONE = "and only what is done has a result or follow-up tasks"
NONSENSE: list[Any] = [
    (DONE, "it answered for 1 of its 4 tasks"),
    (b'{"outcome": "maybe"}', "'maybe': one of done, retry, dead"),
    (b'{"outcome": "retry", "scope": "world"}', "scope = 'world'"),
    (b'{"outcome": "retry", "after": "soon"}', "after = 'soon'"),
    (b'{"stage": ""}', "is no text"),
    (b'{"stage": "a\\u0000b"}', "control characters"),
    (b'{"outcome": "dead", "result": 1}', f"outcome = 'dead', {ONLY_DONE}"),
    (b'{"outcome": "retry", "then": []}', f"outcome = 'retry', {ONLY_DONE}"),
    (b'{"outcome": "done", "stage": "s", "result": 1}', f"it names a stage, {ONLY_DONE}"),
    (b'{"result": 1e400}', "the number 1e400 is beyond what a float can be"),
    (b'{"then": null}', "then: Input should be a valid list"),
    (b'{"then": [{"body": {}}, 7]}', "follow-up task 2: Input should be a valid dictionary"),
    (b'{"then": [{"type": "t"}]}', "follow-up task 1: body Field required"),
    (b'{"then": [{"body": {}, "delay": "1"}]}', "follow-up task 1: delay Input should be a valid"),
    (b'{"then": [{"body": {}, "id": "x"}]}', "follow-up task 1: id Extra inputs are not"),
    (b'{"then": [%s]}' % b",".join([b'{"body": {}}'] * 101), "then: List should have at most 100"),
]


@pytest.mark.parametrize(("answer", "what"), NONSENSE)
def test_an_answer_that_makes_no_sense_has_failed(answer: bytes, what: str) -> None:
    failure = outcomes_in(answer, 4, Done(), has_result=True)[-1]
    assert isinstance(failure, Failed)
    assert what in failure.message


@on_uvloop
async def test_a_command_answers_in_lines() -> None:
    script = (
        """while read -r line; do echo '{"outcome": "done"}'; done; test "$GROUPFLOW_BATCH" = 4"""
    )
    assert await _shell(script).handle_all(TASKS) == [Done()] * 4
    assert await _shell("cat >/dev/null").handle_all(TASKS) == [Done()] * 4
    assert await _shell("exit 75").handle_all(TASKS) == [Retry(reason="exit code 75")]
    two = await _shell("""echo '{"outcome": "done"}'; echo oh >&2; exit 3""").handle_all(TASKS)
    assert two == [Done(), Failed("ExitCode", "exit code 3: oh")]


@on_uvloop
async def test_a_batch_whose_lines_are_not_all_read_is_taken_apart() -> None:
    """Of which task the first line is that is left, no one can tell."""
    script = f"""{LONG}; for n in 1 2 3 4; do echo '{{"outcome": "done", "result": 1}}'; done"""
    [failed] = await _shell(script, result=True).handle_all(TASKS)
    assert failed == replace(OVER_LONG, is_final=False)
    assert await _shell(script, result=True).handle_all(TASKS[:1]) == [OVER_LONG]
    dead = f'echo \'{{"outcome": "done"}}\'; {LONG}; echo; echo \'{{"outcome": "dead"}}\''
    assert await _shell(dead).handle_all(TASKS) == [failed]
    lost = f'echo \'{{"outcome": "dead"}}\'; {LONG}'
    assert await _shell(lost).handle_all(TASKS) == [failed]
    assert await _shell(LONG).handle_all(TASKS) == [Done()] * 4
    less = dead.replace(LONG, MUCH)
    assert await _shell(less).handle_all(TASKS) == [Done(), Dead("its handler says so")]


@pytest.mark.parametrize(
    ("output", "is_answer"),
    [
        (b'out\n {"stage": "b", "context": "%b' % (b"x" * 100), True),
        (b'50 %%\r{"reason": "%b", "outcome": "dead"}\n' % (b"x" * 100), True),
        (b'[{"outcome": "dead"}]\n{"rows": 3}\n"stage"\n{"result": 1}', False),
    ],
)
def test_an_answer_is_heard_in_pieces_of_any_size(output: bytes, is_answer: bool) -> None:
    for size in range(1, len(output) + 1):
        lines = OutputLines(task())
        for begin in range(0, len(output), size):
            lines.feed(output[begin : begin + size])
        assert lines.have_answer == is_answer


@on_uvloop
async def test_what_only_one_task_has_is_not_in_the_environment() -> None:
    only = "GROUPFLOW_ID= GROUPFLOW_FENCE= GROUPFLOW_CONTEXT= GROUPFLOW_ATTEMPT="
    look = 'env | grep -q "^$name" && exit 4'
    script = f'for name in {only}; do {look}; done; test -n "$GROUPFLOW_GROUP"'
    assert await _shell(script).handle_all(TASKS) == [Done()] * 4
