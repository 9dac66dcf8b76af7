"""How an end that is told is addressed: whatever names there are, AMQP can carry it."""

from __future__ import annotations

import pytest

from groupflow.core.events import Told, packed_result


def told(**facts: object) -> Told:
    return Told(7, {"event": "done", "id": "t1", **facts})


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        ({}, "done._._._"),
        ({"app": "crm", "tenant": "4.2", "type": "import.*#"}, "done.crm.4_2.import___"),
        ({"app": None, "tenant": "", "type": "t"}, "done._._.t"),
    ],
)
def test_words_of_the_routing_key(facts: dict[str, object], key: str) -> None:
    assert told(**facts).routing_key == key


def test_what_is_too_long_for_amqp_is_cut_with_its_hash_or_left_out() -> None:
    """Names from strangers; else the relay would fail of them for good."""
    long, other = ("é" * 255 + end for end in ("a", "b"))
    then: list[object] = [("t", "{}", {})] * 2
    one, two = (told(id=id_, app=id_, type=id_, then=then, redriven=2) for id_ in (long, other))
    texts = [one.message_id, one.routing_key, *(id_ for id_, _ in one.following)]
    assert max(len(text.encode()) for text in texts) <= 255
    assert one.message_id != two.message_id
    assert one.following[0][0] != one.following[1][0]
    assert (told(id="m").message_id, told(redriven=2).message_id) == ("m/done", "t1/done/2")
    hexed = told(correlation_id="\ufffd" + "ff" * 255, reply_to="amq." + "x" * 255)
    assert (hexed.correlation_id, hexed.reply_to) == ("", "")
    assert told(correlation_id="c").correlation_id == "c"


@pytest.mark.parametrize(
    ("result", "wrong"),
    [([1, "a"], ""), ("x" * 65_534, ""), ("x" * 65_535, "has 65537 bytes"), (object(), "no JSON")],
)
def test_a_result_is_json_of_64_kib(result: object, wrong: str) -> None:
    packed, error = packed_result(result)
    assert (wrong in error, bool(packed)) == (True, not wrong)
