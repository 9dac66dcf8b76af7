"""What strangers publish becomes a task or a dead letter with its reason, and delays no other task.

What can be wrong with a body or a header: tests/core, tests/flow/test_admission.py and, by all ways
that a message goes, the simulation. Here is what only the wire can carry.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest

from tests.endtoend.conftest import rigs
from tests.endtoend.raw import Properties, RawMessage, send_raw
from tests.endtoend.rig import Job, Rig
from tests.history.auditor import audit

_numbers = itertools.count()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: Any, rabbitmq_server: Any, redis_server: Any) -> Iterator[Rig]:
    """One daemon for all of it: it must still be the same one at the end, with an empty queue."""
    with rigs(tmp_path_factory.mktemp("bad-input"), rabbitmq_server, redis_server) as make:
        rig = make(workers={"unknown_for": 0.0})
        daemon = rig.start("d1")
        yield rig
        # Its end closes its channel: what it had not acked would be back in the queue.
        assert daemon.stop() == 0
        assert rig.left_in_queue() == 0
        assert len(daemon.events("intake.started")) == 1, "intake lost its connection on the way"
        assert audit(rig.raw, rig.keys) == []


def letter(rig: Rig, id_: str) -> tuple[str, bytes]:
    """The reason and the body of a dead letter, as they lie in the store."""
    rig.until(lambda: id_ in rig.dead(), f"the dead letter {id_}")
    packed: Any = rig.raw.hget(rig.keys("tasks"), id_)
    reason: Any = rig.raw.hget(rig.keys("task_state", id_), "reason")
    return reason.decode(), packed.partition(b"\n")[2]


def send(rig: Rig, *messages: RawMessage) -> None:
    """Publish messages and a good task behind them, which must run."""
    send_raw(rig.rabbitmq.url, rig.queue, messages)
    good = new_id()
    rig.publish([Job(good, "good")])
    rig.wait_for_end(good)


def new_id() -> str:
    """A message id of this test's own."""
    return f"m-{next(_numbers)}"


def crm(**facts: Any) -> bytes:
    """The body of a grouped task."""
    return orjson.dumps({"app_name": "crm", "tenant_id": 42, "entity": "contact", **facts})


ODD = ["é" * 127 + "x", "a|||b", "{a}", "'\"\\", "*", "租户 🐘", "a b"]
CONTROLS = ["a\x00b", "\x1b[31mred", "a\x85b"]


def test_message_ids(rig: Rig) -> None:
    """Anything is an id that AMQP can carry; one with control characters names nothing."""
    before = set(rig.dead())
    ids = [*ODD, *CONTROLS]
    send(rig, *(RawMessage(crm(), Properties(message_id=i, message_type="work")) for i in ids))
    for id_ in ODD:
        assert rig.wait_for_end(id_).group == "contact:42"
    fresh = set(rig.dead()) - before
    assert len(fresh) == len(CONTROLS)
    for id_ in fresh:
        assert id_.isalnum()
        reason, kept = letter(rig, id_)
        assert reason.startswith("the message id")
        assert "control characters" in reason
        assert kept == crm()


def test_no_mark_reaches_a_terminal_or_a_log(rig: Rig) -> None:
    """U+009B drives a terminal as ESC does; the others turn or break what it shows."""
    marks = "\x7f\x9b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\U000e0041"
    id_, type_ = new_id(), f"no{marks[2:]}body"
    body = crm(note=marks).replace(b'"note": "', b'"raw": "' + marks.encode() + b'", "note": "')
    properties = Properties(message_id=id_, message_type=type_, headers={"note": marks})
    send(rig, RawMessage(body, properties))
    letter(rig, id_)
    shown = [
        rig.call("dead", *words, "--config", str(rig.config))
        for words in (("show", id_), ("show", id_, "--json"), ("list",), ("list", "--json"))
    ]
    log = b"".join(path.read_bytes() for path in rig.folder.glob("*.log"))
    assert id_.encode() in log
    for text in (*(done.stdout + done.stderr for done in shown), log):
        assert not set(text.decode()) & set(marks)
    found = orjson.loads(shown[1].stdout)
    assert found["headers"]["note"] == marks
    assert found["body"].encode() == body


def test_properties_that_are_not_utf8(rig: Rig) -> None:
    """RabbitMQ passes on text that isn't UTF-8, and times of no calendar: each is a task.

    Such a type has no handler.
    """
    moment, entity = datetime(2026, 1, 1, tzinfo=UTC), new_id()
    at, before = int(moment.timestamp()).to_bytes(8, "big"), set(rig.dead())
    spoil = [(b"@@@@", b"\xff\xfe\xc0\x80"), (at, b"\x7f" + b"\xff" * 7)]
    odd: dict[str, Any] = dict.fromkeys(
        ("correlation_id", "content_type", "content_encoding", "app_id", "reply_to"), "@@@@"
    )
    headers: Any = {"a": {"@@@@": ["@@@@", None, Decimal("1.5")]}, "@@@@": "@@@@", "": moment}
    odd |= {"timestamp": moment, "headers": headers}
    good = Properties(message_id="id@@@@", message_type="work", **odd)
    bad = Properties(message_type="@@@@", **odd)
    send(rig, *(RawMessage(crm(entity=entity), each, spoil) for each in (good, bad)))
    rig.until(lambda: any(each.group == f"{entity}:42" for each in rig.events("end")), "its task")
    (dead,) = set(rig.dead()) - before
    assert "no handler" in letter(rig, dead)[0]
