"""Batches for commands and URLs: a line of JSON a task, and a line an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from groupflow import Advance, Dead, Done, Retry
from groupflow.flow.batches import lines_of, outcomes_in
from groupflow.flow.exec_handlers import ExecBatchRunner
from groupflow.flow.handling import Failed
from groupflow.settings.rules import HandlerRule
from tests.flow.tasks import on_uvloop, task

TASKS = [replace(task(group="g", body=b'{"row": %d}' % n), id=f"t{n}") for n in range(4)]


def _shell(script: str) -> ExecBatchRunner:
    command = ("/bin/sh", "-c", script)
    return ExecBatchRunner(HandlerRule(exec=command, batch=10), command)


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


OUTCOMES: list[Any] = [
    (b"", Done(), [Done()] * 4),
    (b"hello\n42\n[1]\n{broken\n{}\n", Done(), [Done()] * 4),
    (DONE * 4, Done(), [Done()] * 4),
    (DONE * 9, Done(), [Done()] * 4),
    (DONE + b'{"outcome": "dead", "reason": "no"}\n' + DONE, Done(), [Done(), Dead("no")]),
    (b'{"outcome": "dead"}', Done(), [Dead("its handler says so")]),
    (b'{"outcome": "retry", "after": 3, "scope": "group"}', Done(), [Retry(3, "", "group")]),
    (DONE + b'{"stage": "next", "context": [1]}', Done(), [Done(), Advance("next", [1])]),
    (DONE * 2, BROKEN, [Done(), Done(), BROKEN]),
    (DONE * 4, BROKEN, [Done()] * 4),
    (b"", BROKEN, [BROKEN]),
]


@pytest.mark.parametrize(("answer", "end", "expected"), OUTCOMES)
def test_what_became_of_each(answer: bytes, end: Any, expected: list[Any]) -> None:
    assert outcomes_in(answer, 4, end) == expected


NONSENSE: list[Any] = [
    (DONE, "it answered for 1 of its 4 tasks"),
    (b'{"outcome": "maybe"}', "'maybe': one of done, retry, dead"),
    (b'{"outcome": "retry", "scope": "world"}', "scope = 'world'"),
    (b'{"outcome": "retry", "after": "soon"}', "after = 'soon'"),
    (b'{"stage": ""}', "is no text"),
    (b'{"stage": "a\\u0000b"}', "control characters"),
]


@pytest.mark.parametrize(("answer", "what"), NONSENSE)
def test_an_answer_that_makes_no_sense_has_failed(answer: bytes, what: str) -> None:
    failure = outcomes_in(answer, 4, Done())[-1]
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
async def test_what_only_one_task_has_is_not_in_the_environment() -> None:
    only = "GROUPFLOW_ID= GROUPFLOW_FENCE= GROUPFLOW_CONTEXT= GROUPFLOW_ATTEMPT="
    look = 'env | grep -q "^$name" && exit 4'
    script = f'for name in {only}; do {look}; done; test -n "$GROUPFLOW_GROUP"'
    assert await _shell(script).handle_all(TASKS) == [Done()] * 4
