"""What is kept of a message costs little more than its bytes."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from groupflow.broker.consumer import Delivery
from groupflow.broker.frames import VALUES, FieldTable, table
from groupflow.core.errors import Unroutable
from groupflow.core.headers import HEADER_DEPTH, json_headers
from groupflow.core.routing import CANCEL, scope_of
from groupflow.flow.admission import HEAD_BYTES, Admission
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule

MAX_HEADERS = 65_536
ADMISSION = Admission(
    Settings().router(), max_body=1000, max_headers=MAX_HEADERS, step_aside=frozenset()
)


def long_string(text: bytes) -> bytes:
    return b"S" + struct.pack(">I", len(text)) + text


def headers_of(fields: dict[bytes, bytes]) -> FieldTable:
    """Headers as they come: each value with its letter."""
    inside = b"".join(bytes([len(name)]) + name + value for name, value in fields.items())
    return table(struct.pack(">I", len(inside)) + inside)[1]


def delivery(headers: FieldTable, **words: Any) -> Delivery:
    sizes = headers.size, headers.count, headers.is_cut
    return replace(Delivery(1, b'{"type": "t"}', "i", "t", headers, None, *sizes), **words)


@given(st.binary(max_size=500), st.integers(1, 100))
@example(b"\xff\xc3", 32_000)
@settings(max_examples=60)
def test_what_is_stored_of_bytes_grows_by_no_more_than_json_does(piece: bytes, times: int) -> None:
    """64 KiB that aren't UTF-8 became 330 KiB."""
    raw = piece * times
    headers = headers_of({b"x": long_string(raw)})
    if headers.size > MAX_HEADERS:
        return
    stored = len(ADMISSION.admit(delivery(headers)).envelope.pack())
    control_characters = 6  # as JSON writes one
    try:
        raw.decode()
    except UnicodeDecodeError:
        control_characters = 2
    assert stored <= control_characters * len(raw) + 200


def test_headers_over_the_limit_make_a_dead_letter_of_the_short_ones() -> None:
    short = {b"x-tenant": long_string(b"acme"), b"x-n": b"b\x07"}
    long = {b"x-long": long_string(b"\xff\xc3" * 40_000), b"x-table": b"F\0\0\0\0"}
    headers = headers_of(short | long)
    arrival = ADMISSION.admit(delivery(headers))
    assert arrival.id == "i"
    assert arrival.dead == (
        f"the headers have {headers.size} bytes, over rabbitmq.max_headers = 65536; "
        "only some short ones are kept"
    )
    assert arrival.envelope.type == "t"
    assert arrival.envelope.headers == {"x-tenant": "acme", "x-n": 7}
    assert arrival.envelope.body == b'{"type": "t"}'


@pytest.mark.parametrize("value", [b"V", long_string(b"x" * 200)])
def test_many_headers_leave_a_few_kilobytes(value: bytes) -> None:
    headers = headers_of({str(n).encode(): value for n in range(VALUES + 50)})
    arrival = ADMISSION.admit(delivery(headers))
    assert "the headers have over 1024 values" in arrival.dead or "max_headers" in arrival.dead
    assert arrival.envelope.headers
    assert len(arrival.envelope.pack()) < 4 * HEAD_BYTES


def test_headers_at_the_limits_make_a_task() -> None:
    fields = {str(n).encode(): b"V" for n in range(VALUES - 1)}
    rest = MAX_HEADERS - headers_of({**fields, b"x": long_string(b"")}).size
    headers = headers_of({**fields, b"x": long_string(b"y" * rest)})
    assert headers.size == MAX_HEADERS
    arrival = ADMISSION.admit(delivery(headers))
    assert not arrival.dead
    assert arrival.envelope.headers["x"] == "y" * rest


def test_a_message_that_is_too_much_in_every_way_is_cut_in_every_way() -> None:
    headers = headers_of({b"x": long_string(b"\xff" * 100_000)})
    arrival = ADMISSION.admit(delivery(headers, message_id="\n", body=b"x" * 100_000))
    assert all(word in arrival.dead for word in ("control", "max_body", "max_headers"))
    assert len(arrival.envelope.pack()) < HEAD_BYTES + 100


def test_texts_and_bodies_at_their_bounds_are_kept_whole() -> None:
    """One more, and they are cut or left out."""
    headers = headers_of({b"x-%d" % n: long_string(b"x" * n) for n in (256, 257)})
    arrival = ADMISSION.admit(delivery(headers, header_bytes=MAX_HEADERS + 1))
    assert arrival.envelope.headers == {"x-256": "x" * 256}
    body = b'{"type": "t", "x": "' + b"y" * 978 + b'"}'
    assert len(body) == 1000
    assert not ADMISSION.admit(delivery(headers, body=body)).dead
    assert "1001 bytes" in ADMISSION.admit(delivery(headers, body=body + b" ")).dead


HEADERS: list[Any] = [
    (-(2**63), -(2**63)),
    (-(2**63) - 1, str(-(2**63) - 1)),
    (2**64 - 1, 2**64 - 1),
    (2**64, str(2**64)),
    (True, True),
    (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    (Decimal("1.5"), "1.5"),
    (b"text", "text"),
    ([None, {"a": 1.5}], [None, {"a": 1.5}]),
]


@pytest.mark.parametrize(("value", "kept"), HEADERS)
def test_headers_are_what_json_can_carry(value: Any, kept: Any) -> None:
    assert json_headers({"x": value}) == {"x": kept}


@pytest.mark.parametrize(("begins", "ends"), [("[", "]"), ('{"x":', "}")])
def test_tables_are_cut_where_they_lie_too_deep(begins: str, ends: str) -> None:
    for levels, innermost in ((HEADER_DEPTH, "1"), (HEADER_DEPTH + 1, '"(nested too deep)"')):
        found = json_headers({"h": orjson.loads(f"{begins * levels}1{ends * levels}")})
        assert begins + innermost + ends in orjson.dumps(found).decode()


def test_a_message_without_an_id_gets_one_of_its_own() -> None:
    ids = {ADMISSION.admit(delivery(headers_of({}), message_id=None)).id for _ in range(2)}
    assert len(ids) == 2
    assert all(len(each) == 32 for each in ids)


CANCELS: list[tuple[bytes, Any, str, str]] = [
    (b'{"app_name": "crm", "tenant_id": 7}', "order-1", "order-1", ""),
    (b"", b"order-1", "order-1", ""),
    (b"{}", 7, "", "a task's id is needed"),
    (b"{}", None, "", "a task's id is needed"),
    (b"{}", "", "", "a task's id is needed"),
    (b"{}", "a\nb", "", "control character"),
    (b"{}", "x" * 256, "", "over 255 bytes"),
    (b"[]", "order-1", "", "not a JSON object"),
    (b'{"tenant_id": [7]}', "order-1", "", "tenant_id"),
]


@pytest.mark.parametrize(("body", "header", "cancels", "reason"), CANCELS)
def test_a_message_that_cancels_a_task(body: bytes, header: Any, cancels: str, reason: str) -> None:
    """It is no task, and needs no type. One that can't be used is a dead letter, and stays one."""
    seen = Delivery(1, body, "i", None, {CANCEL: header}, None)
    arrival = ADMISSION.admit(seen)
    assert arrival.cancels == cancels
    assert reason in arrival.dead
    assert bool(arrival.dead) == bool(reason)
    owner = scope_of("crm", "7") if b"crm" in body else scope_of(None, None)
    assert arrival.envelope.scope == owner
    with pytest.raises(Unroutable, match="is no task"):
        Settings().router().route(b"{}", json_headers({CANCEL: header}), type="t")


def test_a_task_steps_aside_where_its_rule_says_so() -> None:
    """During a delay: its group goes on."""
    rules = (GroupRule(name="a", app="a", key="{g}"), GroupRule(name="b", key="{g}"))
    router = Settings(groups=rules).router()
    admission = Admission(router, max_body=1000, step_aside=frozenset({"a"}))
    for app, steps_aside in (("a", True), ("b", False)):
        body = orjson.dumps({"type": "t", "app_name": app, "g": 1})
        arrival = admission.admit(delivery(headers_of({}), body=body))
        assert (arrival.envelope.rule, arrival.steps_aside) == (app, steps_aside)
