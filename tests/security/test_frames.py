"""Whatever stands in a message's properties, it is read: it must not cost the connection."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import aiormq
import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.common import FieldValue

from groupflow.broker import frames, topology
from groupflow.broker.connection import connect
from groupflow.broker.consumer import Consumer, Delivery, consuming
from tests.security.conftest import TlsRabbitmq


def _table(inside: bytes) -> bytes:
    return struct.pack(">I", len(inside)) + inside


def _nested(depth: int, kind: bytes = b"F") -> bytes:
    """A table that holds a table that holds …"""
    inside = b""
    for _ in range(depth):
        inside = (b"\x01a" if kind == b"F" else b"") + kind + _table(inside)
    return _table(inside if kind == b"F" else b"\x01a" + inside)


values: st.SearchStrategy[FieldValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, width=32)
    | st.text(max_size=20)
    | st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)).map(
        lambda at: at.replace(microsecond=0, tzinfo=UTC)
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(min_size=1, max_size=20), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=20), values, max_size=5))
def test_sound_tables_read_as_before(table: dict[str, Any]) -> None:
    packed = pamqp.encode.field_table(table)
    assert frames.table(packed + b"what follows") == pamqp.decode.field_table(packed)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.binary(max_size=20))
def test_garbage_costs_nothing_but_itself(inside: bytes, rest: bytes) -> None:
    end, found = frames.table(_table(inside) + rest)
    assert end == 4 + len(inside)
    assert all(isinstance(name, str) for name in found)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=255))
def test_any_short_string(text: bytes) -> None:
    end, found = frames.short_string(bytes([len(text)]) + text + b"rest")
    assert end == 1 + len(text)
    found.encode()
    with suppress(UnicodeDecodeError):
        assert found == text.decode()


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=8, max_size=8))
def test_any_time(raw: bytes) -> None:
    end, found = frames.timestamp(raw)
    assert end == 8
    assert isinstance(found, datetime | int)


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_deep_nesting_is_cut(kind: bytes) -> None:
    packed = _nested(20_000, kind)
    end, found = frames.table(packed)
    assert end == len(packed)
    depth = 0
    while found:
        found = found["a"] if isinstance(found, dict) else found[0]
        depth += 1
    assert depth <= frames.DEPTH


def _short_bytes(value: str) -> bytes:
    packed = value.encode("utf-8", "surrogateescape")
    return bytes([len(packed)]) + packed


def _raw_table(whole: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: bytes(value["raw"]) if "raw" in value else whole(value)


async def test_no_message_stops_intake(
    tls_rabbitmq: TlsRabbitmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these closed the connection of whoever consumed it, again and again."""
    publisher = await aiormq.connect(tls_rabbitmq.url)
    channel = await publisher.channel(publisher_confirms=False)
    queue = "poison"
    Properties = aiormq.spec.Basic.Properties  # noqa: N806
    connection = await connect(tls_rabbitmq.url, heartbeat=10, timeout=10, name="t")
    await topology.declare(connection, queue)
    late = struct.pack(">Q", 2**64 - 1)
    with monkeypatch.context() as patch:
        patch.setitem(pamqp.encode.METHODS, "shortstr", _short_bytes)
        table = pamqp.encode.METHODS["table"]
        patch.setitem(pamqp.encode.METHODS, "table", _raw_table(table))
        patch.setitem(pamqp.encode.METHODS, "timestamp", lambda _: late)
        for properties in (
            Properties(message_id="id\udcff"),
            Properties(message_type="\udcc3"),
            Properties(timestamp=datetime.now(UTC)),
            Properties(headers={"raw": _table(b"\x01\xffV\x01aT" + late)}),
            Properties(headers={"raw": _nested(5000)}),
            Properties(headers={"raw": _nested(5000, b"A")}),
            Properties(message_id="the last one"),
        ):
            await channel.basic_publish(b"{}", routing_key=queue, properties=properties)
        await asyncio.sleep(0.2)
    consumer = Consumer(queue, 10_000)
    found: list[Delivery] = []
    try:
        async with consuming(connection, consumer, 100):
            while len(found) < 7:
                found += await asyncio.wait_for(consumer.take(100, 10_000), 10)
    finally:
        await connection.close()
        await publisher.close()
    assert found[0].message_id == "id\\xff"
    assert found[1].type == "\\xc3"
    assert found[3].headers == {"\\xff": None, "a": 2**64 - 1}
    assert found[-1].message_id == "the last one"
