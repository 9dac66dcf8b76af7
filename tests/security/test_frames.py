"""Any properties of a message are read: none costs the connection."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import aiormq
import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pamqp.common import FieldValue

from groupflow.broker import frames, topology
from groupflow.core.headers import MARK, as_text
from tests.broker.wires import connected, taken
from tests.deadlines import deadline
from tests.security.conftest import TlsRabbitmq


def _table(inside: bytes) -> bytes:
    return struct.pack(">I", len(inside)) + inside


def _nested(depth: int, kind: bytes = b"F") -> bytes:
    """A table that holds a table that holds …"""
    inside = b""
    for _ in range(depth):
        inside = (b"\x01a" if kind == b"F" else b"") + kind + _table(inside)
    return _table(inside if kind == b"F" else b"\x01a" + inside)


names = st.text(min_size=1, max_size=20)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, width=32)
times = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1))
times = times.map(lambda at: at.replace(microsecond=0, tzinfo=UTC))
values: st.SearchStrategy[FieldValue] = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=20) | times,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40)
@given(st.dictionaries(names, values, max_size=5))
def test_sound_tables_read_as_before(table: dict[str, Any]) -> None:
    packed = pamqp.encode.field_table(table)
    assert frames.table(packed + b"what follows") == pamqp.decode.field_table(packed)


@settings(max_examples=100)
@given(st.binary(max_size=255), st.binary(max_size=20))
def test_garbage_costs_nothing_but_itself(inside: bytes, rest: bytes) -> None:
    """RabbitMQ checks the layout; where it doesn't, the connection must last all the same."""
    for read in (frames.table, frames.timestamp, frames.short_string):
        read(rest)
    end, found = frames.table(_table(inside) + rest)
    assert end == 4 + len(inside)
    assert all(isinstance(name, str) for name in found)
    end, text = frames.short_string(bytes([len(inside)]) + inside + rest)
    assert end == 1 + len(inside)
    assert text == as_text(inside)
    text.encode()
    end, time = frames.timestamp(inside.ljust(8, b"\xff"))
    assert end == 8
    assert isinstance(time, datetime | int)


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


def _calls(packed: bytes) -> int:
    """How many values, of any kind and depth, are read of a table."""
    calls = 0
    read = frames._Source._value

    def counted(*words: Any) -> tuple[int, Any]:
        nonlocal calls
        calls += 1
        assert calls < 100_000, "it would not end"
        return read(*words)

    with patch.object(frames._Source, "_value", counted):
        frames.table(packed)
    return calls


_kinds = st.tuples(st.sampled_from([b"A", b"\x01aF", b"S", b"V", b"D", b"T"]), st.integers(0, 30))


def _packed(kinds: list[tuple[bytes, int]]) -> bytes:
    return b"".join(kind + struct.pack(">I", length) for kind, length in kinds)


@settings(max_examples=200)
@given(st.lists(_kinds, max_size=60).map(lambda kinds: b"\x01aA" + _packed(kinds)))
@example(b"\x01a" + _packed([(b"A", 5), (b"A", 21)] * 25))  # took 104 s
def test_lengths_that_overlap_cost_no_more_than_their_bytes(inside: bytes) -> None:
    assert _calls(_table(inside)) <= len(inside)


@settings(max_examples=100)
@given(st.binary(max_size=60), st.binary(max_size=60), st.sampled_from([b"S", b"x", b"A", b"F"]))
def test_nothing_is_read_beyond_the_table_that_it_is_in(
    inside: bytes, behind: bytes, kind: bytes
) -> None:
    """An inner length of any size reads nothing behind the outer end."""
    inner = b"\x01a" + kind + struct.pack(">I", 2**31) + inside
    assert frames.table(_table(inner) + behind) == frames.table(_table(inner))


@pytest.mark.parametrize(
    "inside", [b"\x05a", b"\x01a", b"\x01aI\0", b"\x01aT\0\0", b"\x01aD\2", b"\x01aq", b"\x01at"]
)
@pytest.mark.parametrize("behind", [b"", b"\1" * 20, b"S" * 20])
def test_a_name_or_value_that_is_cut_off_ends_its_table(inside: bytes, behind: bytes) -> None:
    assert frames.table(_table(inside) + behind) == (4 + len(inside), {})


def test_values_are_counted_and_cut() -> None:
    packed = _table(b"\x01aA" + _table(b"V" * 60_000))
    end, found = frames.table(packed)
    assert end == found.size == len(packed)
    assert len(found["a"]) == frames.VALUES - 1
    assert found.count == frames.VALUES
    assert found.is_cut
    assert not frames.table(_table(b"\x01aV"))[1].is_cut


@settings(max_examples=200)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_different_bytes_are_different_texts(one: bytes, other: bytes) -> None:
    for raw in (one, as_text(one).encode(), b"\\xff", f"{MARK}ff".encode()):
        assert (as_text(raw) == as_text(other)) == (raw == other)
        with suppress(UnicodeDecodeError):
            if not raw.startswith(MARK.encode()):
                assert as_text(raw) == raw.decode(), "text stays as it is"


def _short_bytes(value: str) -> bytes:
    packed = value.encode("utf-8", "surrogateescape")
    return bytes([len(packed)]) + packed


def _raw_table(whole: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: bytes(value["raw"]) if "raw" in value else whole(value)


def test_a_publisher_leaves_pamqp_as_it_is() -> None:
    """An application's other connections are read as they were before."""
    look = """
import pamqp.decode
before = dict(pamqp.decode.METHODS)
from groupflow import Publisher
import groupflow.broker.consumer, groupflow.broker.archive
assert pamqp.decode.METHODS == before
"""
    subprocess.run([sys.executable, "-c", look], check=True, timeout=deadline())


async def test_no_message_stops_intake(tls_rabbitmq: TlsRabbitmq, monkeypatch: Any) -> None:
    """Each of these closed its consumer's connection, again and again."""
    publisher = await aiormq.connect(tls_rabbitmq.url)
    channel = await publisher.channel(publisher_confirms=True)
    queue = "poison"
    Properties = aiormq.spec.Basic.Properties  # noqa: N806
    late = struct.pack(">Q", 2**64 - 1)
    async with connected(tls_rabbitmq.url) as connection:
        await topology.declare(connection, queue)
    with monkeypatch.context() as patch:
        patch.setitem(pamqp.encode.METHODS, "shortstr", _short_bytes)
        patch.setitem(pamqp.encode.METHODS, "table", _raw_table(pamqp.encode.METHODS["table"]))
        patch.setitem(pamqp.encode.METHODS, "timestamp", lambda _: late)
        tables = (_table(b"\x01\xffV\x01aT" + late), _nested(5000), _nested(5000, b"A"))
        for properties in (
            *(Properties(message_id="id\udcff"), Properties(message_type="\udcc3")),
            Properties(timestamp=datetime.now(UTC)),
            *(Properties(headers={"raw": table}) for table in tables),
            Properties(message_id="the last one"),
        ):
            await channel.basic_publish(b"{}", routing_key=queue, properties=properties)
    async with asyncio.timeout(deadline()):
        found = await taken(tls_rabbitmq.url, queue, 7)
    await publisher.close()
    assert found[0].message_id == MARK + "6964ff"
    assert found[1].type == MARK + "c3"
    assert found[3].headers == {MARK + "ff": None, "a": 2**64 - 1}
    assert found[-1].message_id == "the last one"
