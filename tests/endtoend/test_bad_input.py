"""Whatever strangers publish becomes a task or a dead letter with its reason, and delays nobody."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from tests.endtoend.raw import Properties, RawMessage, send_raw
from tests.endtoend.rig import Job, Rig
from tests.history.auditor import audit

MAX_BODY = 262_144
_numbers = itertools.count()


@pytest.fixture(scope="module")
def rig(
    tmp_path_factory: pytest.TempPathFactory,
    rabbitmq_server: RabbitmqServer,
    redis_server: RedisServer,
) -> Iterator[Rig]:
    """One daemon for all of it: it must still be the same one at the end, with an empty queue."""
    folder = tmp_path_factory.mktemp("bad-input")
    rig = Rig(folder, rabbitmq_server, redis_server, rabbitmq={"max_body": MAX_BODY})
    try:
        daemon = rig.start("d1")
        yield rig
        # Its end closes its channel: what it had not acked would be back in the queue.
        assert daemon.stop() == 0
        assert rig.left_in_queue() == 0
        assert len(daemon.events("intake.started")) == 1, "intake lost its connection on the way"
        assert audit(rig.raw, rig.keys) == []
    finally:
        rig.close()


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it lies in the store."""

    id: str
    reason: str
    type: str
    headers: dict[str, Any]
    body: bytes


def letter(rig: Rig, id_: str) -> Letter:
    """The dead letter of a message."""
    rig.until(lambda: id_ in rig.dead(), f"the dead letter {id_}")
    packed: Any = rig.raw.hget(rig.keys("tasks"), id_)
    reason: Any = rig.raw.hget(rig.keys("task_state", id_), "reason")
    facts, _, body = packed.partition(b"\n")
    type_, _group, _tenant, _rule, *headers = orjson.loads(facts)
    return Letter(id_, reason.decode(), type_, headers[0] if headers else {}, body)


def send(rig: Rig, *messages: RawMessage) -> None:
    """Publish messages and a good task behind them, which must run."""
    send_raw(rig.rabbitmq.url, rig.queue, messages)
    good = f"good-{next(_numbers)}"
    rig.publish([Job(good, "good")])
    rig.wait_for_end(good)


def new_id() -> str:
    """A message id of this test's own."""
    return f"m-{next(_numbers)}"


def crm(**facts: Any) -> bytes:
    """The body of a grouped task; a fact of `...` is left out."""
    whole = {"app_name": "crm", "tenant_id": 42, "entity": "contact", **facts}
    return orjson.dumps({name: value for name, value in whole.items() if value is not ...})


DIGITS = b'{"app_name": "crm", "tenant_id": %s, "entity": "contact"}' % (b"1234567890" * 3)
DEEP = b"[" * 100_000
BODIES = {
    "not_json": (b"{oops", "not JSON"),
    "half_json": (b'{"app_name": "crm"', "not JSON"),
    "two_values": (b'{} {"a": 1}', "not JSON"),
    "not_a_number": (b'{"a": NaN}', "not JSON"),
    "bad_utf8": (b'{"a": "\xff"}', "not UTF-8: byte 0xff at 7"),
    "utf16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "lone_surrogate": (b'{"a": "\\ud800"}', "not JSON"),
    "null_byte": (b"\x00", "not JSON"),
    "brackets_open": (DEEP, "not JSON"),
    "brackets_closed": (b'{"a": ' + DEEP + b"]" * 100_000 + b"}", "not JSON"),
    "braces": (b'{"a":' * 40_000 + b"1" + b"}" * 40_000, "not JSON"),
    "empty": (b"", "empty body"),
    "blank": (b"  \n ", "not JSON"),
    "a_list": (b"[1, 2]", "not a JSON object but a list of 2"),
    "a_number": (b"5", "not a JSON object"),
    "a_text": (b'"crm"', "not a JSON object"),
    "null": (b"null", "not a JSON object"),
    "thirty_digits_in_a_key": (DIGITS, "beyond 64 bits"),
    "nul_in_a_key": (crm(entity="a\x00b"), "control character U+0000"),
    "line_feed_in_a_key": (crm(entity="a\nb"), "control character U+000A"),
    "c1_control_in_a_key": (crm(entity="a\x9bb"), "control character U+009B"),
    "nul_in_the_tenant": (crm(tenant_id="\x00"), "control character U+0000"),
    "key_field_missing": (crm(entity=...), "key field {entity} of rule 'groups[0]' is missing"),
    "key_field_null": (crm(entity=None), "key field {entity} of rule 'groups[0]' is missing"),
    "key_field_empty": (crm(entity=""), "key field {entity} of rule 'groups[0]' is missing"),
    "tenant_missing": (crm(tenant_id=...), "key field {tenant_id}"),
    "key_field_an_object": (crm(entity={"a": 1}), "is an object"),
    "key_field_a_list": (crm(entity=["a"]), "is a list"),
    "key_field_true": (crm(entity=True), "true or false"),
    "key_field_a_fraction": (crm(entity=1.5), "a number with a fraction"),
    "key_too_long": (crm(entity="é" * 300), "over 512 bytes"),
    "app_a_list": (crm(app_name=["crm"]), "app_name"),
    "tenant_an_object": (b'{"app_name": "plain", "tenant_id": {}}', "tenant_id"),
    "tenant_too_long": (crm(tenant_id="x" * 256), "over 255 bytes"),
}


@pytest.mark.parametrize("case", BODIES)
def test_bad_body(rig: Rig, case: str) -> None:
    """A body that can't become a task is a dead letter: its reason, and its bytes as they came."""
    body, reason = BODIES[case]
    id_ = new_id()
    send(rig, RawMessage(body, Properties(message_id=id_, message_type="work")))
    found = letter(rig, id_)
    assert reason in found.reason
    assert found.body == body
    assert found.type == "work"


def test_body_over_the_limit(rig: Rig) -> None:
    """Of a body over the limit its size and its head are kept; one at the limit is a task."""
    too_large, largest = new_id(), new_id()
    body = b'{"a": "' + b"x" * MAX_BODY + b'"}'
    good = b'{"a": "' + b"x" * (MAX_BODY - 9) + b'"}'
    assert len(good) == MAX_BODY
    send(
        rig,
        RawMessage(body, Properties(message_id=too_large, message_type="work")),
        RawMessage(good, Properties(message_id=largest, message_type="work")),
    )
    found = letter(rig, too_large)
    assert f"{len(body)} bytes" in found.reason
    assert str(MAX_BODY) in found.reason
    assert found.body == body[:4096]
    rig.wait_for_end(largest)


@pytest.mark.parametrize(
    ("type_", "body", "reason"),
    [
        ("nobody", crm(), "no handler for type 'nobody'"),
        (None, crm(type="nobody"), "no handler for type 'nobody'"),
        (None, crm(), "no type"),
        ("", crm(), "no type"),
        (None, crm(type=5), "text is needed"),
        (None, crm(type=None), "no type"),
        (None, crm(type=["work"]), "text is needed"),
        (None, crm(type="x" * 256), "over 255 bytes"),
        ("wo\x00rk", crm(), "control character"),
        ("wo\nrk", crm(), "control character"),
        ("work ", crm(), "no handler for type 'work '"),
        ("{work}", crm(), "no handler for type '{work}'"),
    ],
    ids=ascii,
)
def test_bad_type(rig: Rig, type_: str | None, body: bytes, reason: str) -> None:
    """A type that is missing, no text, or without a handler."""
    id_ = new_id()
    send(rig, RawMessage(body, Properties(message_id=id_, message_type=type_)))
    found = letter(rig, id_)
    assert reason in found.reason
    assert found.body == body


@pytest.mark.parametrize("id_", ["a\x00b", "a\nb", "\x1b[31mred", "a\x7f", "a\x85b"], ids=ascii)
def test_message_id_with_control_characters(rig: Rig, id_: str) -> None:
    """Such an id names nothing: the message is a dead letter under a fresh one."""
    before = set(rig.dead())
    body = crm(marker=ascii(id_))
    send(rig, RawMessage(body, Properties(message_id=id_, message_type="work")))
    rig.until(lambda: len(rig.dead()) > len(before), "its dead letter")
    (fresh,) = set(rig.dead()) - before
    found = letter(rig, fresh)
    assert "the message id" in found.reason
    assert "control characters" in found.reason
    assert found.body == body
    assert fresh.isalnum()


@pytest.mark.parametrize("id_", ["é" * 127 + "x", "a|||b", "{a}", "'\"\\", "*", "租户 🐘", "a b"])
def test_odd_message_ids_are_ids(rig: Rig, id_: str) -> None:
    """Anything else is an id, up to the longest that AMQP can carry."""
    send(rig, RawMessage(crm(), Properties(message_id=id_, message_type="work")))
    assert rig.wait_for_end(id_).group == "contact:42"


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


def test_no_message_id(rig: Rig) -> None:
    """Without an id each message is a task of its own, under a fresh one."""
    body = crm(entity="nameless", n=1)
    send(rig, *(RawMessage(body, Properties(message_type="work")) for _ in range(3)))
    rig.until(
        lambda: len([e for e in rig.events("end") if e.group == "nameless:42"]) == 3,
        "three tasks",
    )
    assert len({event.id for event in rig.events("end") if event.group == "nameless:42"}) == 3


def test_duplicate_message_ids(rig: Rig) -> None:
    """The first message of an id is the task, whatever the later ones are."""
    id_, bad = new_id(), new_id()
    properties = Properties(message_id=id_, message_type="work")
    send(
        rig,
        RawMessage(crm(n=1), properties),
        RawMessage(crm(n=2), properties),
        RawMessage(b"{oops", properties),
        RawMessage(b"{oops", Properties(message_id=bad)),
        RawMessage(crm(), Properties(message_id=bad, message_type="work")),
    )
    assert [event.n for event in rig.events("end", id_)] == [1]
    assert id_ not in rig.dead()
    assert "not JSON" in letter(rig, bad).reason
    assert rig.events("start", bad) == []


def test_odd_headers_are_headers(rig: Rig) -> None:
    """Header values of every AMQP kind, and names of every sort, hold no task up."""
    nested: Any = 1
    for _ in range(60):
        nested = {"deeper": [nested]}
    headers: dict[str, Any] = {
        "bytes": bytearray(b"\xff\xfe"),
        "none": None,
        "true": True,
        "small": -1,
        "large": 2**62,
        "float": 1.5,
        "decimal": Decimal("1.25"),
        "when": datetime(2026, 1, 1, tzinfo=UTC),
        "list": [1, "a", None, [bytearray(b"\xff")]],
        "table": {"a": {"b": {"": None}}},
        "nested": nested,
        "": "empty name",
        "na\x00me\u2028": "control\x00\u2028",
        "quote\"'": "{x}",
    }
    id_ = new_id()
    properties = Properties(message_id=id_, message_type="work", headers=headers)
    send(rig, RawMessage(crm(), properties))
    rig.wait_for_end(id_)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"x-priority": "high"}, "x-priority"),
        ({"x-priority": True}, "x-priority"),
        ({"x-priority": "inf"}, "x-priority"),
        ({"x-priority": "1e300"}, "x-priority"),
        ({"x-delay": "soon"}, "x-delay"),
        ({"x-delay": [1]}, "x-delay"),
        ({"x-delay": bytearray(b"\xff")}, "x-delay"),
        ({"x-delay": 2**60}, "x-delay"),
    ],
    ids=ascii,
)
def test_headers_that_mean_something_wrong(rig: Rig, headers: dict[str, Any], reason: str) -> None:
    """A header that routing reads has to make sense."""
    id_ = new_id()
    properties = Properties(message_id=id_, message_type="work", headers=headers)
    send(rig, RawMessage(crm(), properties))
    found = letter(rig, id_)
    assert reason in found.reason
    assert found.body == crm()


PLACE = b"@@@@"  # becomes bytes that no well-behaved client would send
NOT_TEXT = b"\xff\xfe\xc0\x80"


@pytest.mark.parametrize(
    "properties",
    [
        Properties(message_id="id@@@@", message_type="work"),
        Properties(message_type="@@@@"),
        Properties(message_type="work", headers={"@@@@": 1}),
        Properties(message_type="work", headers={"a": "@@@@"}),
        Properties(message_type="work", headers={"a": {"@@@@": ["@@@@"]}}),
        Properties(message_type="work", correlation_id="@@@@"),
        Properties(message_type="work", content_type="@@@@", content_encoding="@@@@"),
        Properties(message_type="work", app_id="@@@@", reply_to="@@@@"),
    ],
    ids=["id", "type", "header_name", "header_value", "nested", "correlation", "content", "app"],
)
def test_properties_that_are_not_utf8(rig: Rig, properties: Properties) -> None:
    """RabbitMQ passes on text that isn't UTF-8: it must not stop the consumer."""
    entity = new_id()
    body = crm(entity=entity)
    over = len(rig.dead())
    send(rig, RawMessage(body, properties, spoil=[(PLACE, NOT_TEXT)]))
    rig.until(
        lambda: (
            len(rig.dead()) > over
            or any(event.group == f"{entity}:42" for event in rig.events("end"))
        ),
        "its task or its dead letter",
    )
    if properties.message_type == "@@@@":
        assert "no handler" in letter(rig, rig.dead()[-1]).reason


@pytest.mark.parametrize(
    "seconds", [b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x00\x00\x01" + b"\xff" * 5]
)
def test_timestamps_of_no_calendar(rig: Rig, seconds: bytes) -> None:
    """A time beyond all calendars, as a property and as a header."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    at = int(moment.timestamp()).to_bytes(8, "big")
    id_ = new_id()
    properties = Properties(
        message_id=id_, message_type="work", timestamp=moment, headers={"when": moment}
    )
    send(rig, RawMessage(crm(), properties, spoil=[(at, seconds)]))
    rig.wait_for_end(id_)
