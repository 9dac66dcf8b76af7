"""Any message of a stranger becomes a task or a dead letter, under keys of its own kind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from groupflow.broker.consumer import Delivery
from groupflow.core.template import MAX_KEY_BYTES
from groupflow.flow.admission import Admission
from groupflow.servers import RedisServer
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule
from groupflow.store.enqueue import Arrival
from groupflow.store.envelope import Envelope
from tests.store.bench import Bench

MAX_BODY = 400
SETTINGS = Settings(
    fields={"priority": "p", "delay": "header.d"},
    groups=(
        GroupRule(app="crm", tenants=(42, "acme"), key="{entity}:{tenant_id}"),
        GroupRule(app="merge", key="{header.x-key}/{tenant_id}", on_delay="step-aside"),
        GroupRule(app="one", key="{rows.0.id}"),
        GroupRule(app="fixed", key="all"),
    ),
)
ADMISSION = Admission(
    SETTINGS.router(), max_body=MAX_BODY, step_aside=frozenset({SETTINGS.groups[1].name})
)

# Text that AMQP can carry, with what is known to make trouble.
awkward = st.sampled_from([
    *("*", "42", "{x}", "|||", "a:b", "%3A", "../..", "}:dead", "{groupflow}:dead", "'; --", "0"),
    *("-0", "1e999", "NaN", "\n", "\x00", "\x1b[2J", "\x85", "\u2028", "\u202e", " ", "dead"),
    *("count", ":dead", "{x}:count", "x}:dead", "new", "../count"),
])  # fmt: skip
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | awkward
short_texts = texts | st.text(st.characters(exclude_categories=["Cs"]), min_size=60, max_size=63)
numbers = st.integers() | st.floats() | st.decimals() | st.booleans()
scalars = st.none() | numbers | texts

header_values = st.recursive(
    scalars | st.binary(max_size=20) | st.datetimes(timezones=st.just(UTC)) | st.builds(bytearray),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
header_names = st.sampled_from(["x-key", "x-delay", "x-priority", "d"]) | texts
headers = st.dictionaries(header_names, header_values, max_size=4)

fields = st.recursive(
    st.none() | st.integers() | st.floats() | st.booleans() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
facts: dict[Any, st.SearchStrategy[Any]] = {
    "app_name": st.sampled_from(["crm", "merge", "one", "fixed", "*"]) | fields,
    "tenant_id": st.sampled_from([42, "42", "acme", "*"]) | fields,
    "rows": st.lists(st.dictionaries(st.just("id"), fields)) | fields,
    **dict.fromkeys(("type", "entity", "p"), fields),
}
objects = st.fixed_dictionaries({}, optional=facts)
strange = [
    *(b"", b"{}", b"[" * 300, b'{"a":' * 300, b"\xef\xbb\xbf{}", b"\n" * 9),
    *(b'{"type":"t","type":"u"}', b'{"type":"\\ud800"}'),
    *(b'{"type":"t","tenant_id":%b}' % (b"9" * 300), b'{"type":"%b"}' % (b"x" * MAX_BODY)),
]
bodies = st.binary(max_size=60) | st.sampled_from(strange)
bodies |= objects.map(lambda value: json.dumps(value).encode())
bodies |= objects.map(lambda value: json.dumps(value, ensure_ascii=False).encode())
named = dict.fromkeys(("message_id", "type", "expiration"), st.none() | short_texts)
ranked = {"priority": st.none() | st.integers(0, 255)}
deliveries = st.builds(Delivery, tag=st.just(1), body=bodies, headers=headers, **named, **ranked)


def _is_clean(text: str) -> bool:
    """Text that can be stored, and can't forge a line or drive a terminal by a control code."""
    text.encode()
    return not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text)


def _deep(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": [found]}
    return found


@given(deliveries)
@example(Delivery(1, b"{}", "", "", {"a": _deep(40), "": float("nan")}, 0))
@example(Delivery(1, b"{}", "\n", "\x1b", {"x": Decimal("sNaN"), "y": 2**70}, 255))
@example(Delivery(1, b"{}", "i", "t", {"x-delay": datetime.now(UTC), "d": b"\xff"}, None))
@settings(max_examples=150)
def test_admission_never_raises(delivery: Delivery) -> None:
    arrival = ADMISSION.admit(delivery)
    assert arrival.id
    assert _is_clean(arrival.id)
    assert arrival.dead.isprintable()
    assert len(arrival.dead) < 1500
    envelope = arrival.envelope
    assert _is_clean(envelope.type)
    if envelope.group is not None:
        assert _is_clean(envelope.group)
        assert 0 < len(envelope.group.encode()) <= MAX_KEY_BYTES
    assert not (arrival.dead and envelope.group)
    packed = envelope.pack()
    again = Envelope.unpack(packed)
    assert again.pack() == packed
    assert again.body == envelope.body
    facts = [(each.type, each.group, each.tenant) for each in (again, envelope)]
    assert facts[0] == facts[1]
    if len(delivery.body) <= MAX_BODY:
        assert envelope.body == delivery.body, "the bytes are the publisher's"
    else:
        assert arrival.dead
    arrival.arguments()


async def _live_through(server: RedisServer, arrivals: Sequence[Arrival]) -> None:
    """A task state for these: taken in twice, claimed, done; judged on the way."""
    async with Bench(server.url) as bench:
        taken = await bench.enqueue(*arrivals)
        assert sum(taken) == len({(arrival.id, arrival.envelope.scope) for arrival in arrivals})
        assert not any(await bench.enqueue(*arrivals))
        _judge_keys(bench)
        assert bench.audit() == []
        daemon = await bench.daemon()
        await daemon.work_off()
        _judge_keys(bench)
        assert bench.audit() == []
        status = await bench.status()
        assert status.dead == sum(
            is_new and bool(a.dead) for a, is_new in zip(arrivals, taken, strict=True)
        )


def _judge_keys(bench: Bench) -> None:
    keys = bench.keys
    whole = {key for _, key in keys.every()}
    prefixes = tuple(keys(k) + ":" for k in ("lane", "lock", "task_state", "daemon", "worker"))
    for raw in bench.raw.scan_iter(match=f"*{keys.namespace}*", count=1000):
        name = raw.decode()
        assert name.startswith(prefixes) or name in whole, name


@given(st.lists(deliveries, min_size=1, max_size=12))
@settings(max_examples=20)
def test_a_batch_never_fails(redis_server: RedisServer, batch: list[Delivery]) -> None:
    """Ids and groups that look like keys are only ever the end of one."""
    asyncio.run(_live_through(redis_server, [ADMISSION.admit(each) for each in batch]))


def delivered(body: bytes, message_id: str, type_: str | None) -> Delivery:
    """A delivery without headers."""
    return Delivery(1, body, message_id, type_, {}, None)


def scope(body: bytes, type_: str | None, *, dies: bool) -> str:
    arrival = ADMISSION.admit(delivered(body, "i", type_))
    assert bool(arrival.dead) is dies
    return arrival.envelope.scope


def test_what_is_refused_is_its_tenants_all_the_same() -> None:
    """As far as its application and tenant can be read; else it has no owner, and takes no id."""
    owner = {"app_name": "crm", "tenant_id": 42}
    whole = {**owner, "entity": "e"}
    others = (
        {**whole, "tenant_id": "acme"},
        {"app_name": "erp", "tenant_id": 42},
        {"tenant_id": 42},
    )
    ours, *theirs = (scope(json.dumps(each).encode(), "t", dies=False) for each in (whole, *others))
    assert len({"", ours, *theirs}) == 2 + len(others)
    for facts, type_ in ((owner, "t"), (whole, None), ({**owner, "p": "x"}, "t")):
        assert scope(json.dumps(facts).encode(), type_, dies=True) == ours
    named = scope(b'{"app_name": "crm", "tenant_id": [1]}', "t", dies=True)
    assert named not in ("", ours), "it named an application"
    for body in (b"[" * 99, b"\xff", b"{", b"[]", b'{"type":"t"', b"{" + b" " * MAX_BODY + b"}"):
        assert scope(body, "t", dies=True) == ""
