"""Rules that run, batch or debounce; `rabbitmq.url` as a list of one cluster's nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from pamqp import commands
from pydantic import ValidationError

from groupflow.broker.connection import nodes_of
from groupflow.broker.consumer import Delivery
from groupflow.core.errors import ConfigError
from groupflow.core.limits import Debounce
from groupflow.flow.admission import Admission
from groupflow.schedule.definitions import definitions_of
from groupflow.settings.ends import Events
from groupflow.settings.load import load_settings
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.settings.problems import problems_of
from groupflow.settings.rules import GroupRule
from groupflow.settings.transport import address_of
from groupflow.store.limits import pack


def rule(**facts: Any) -> GroupRule:
    return GroupRule.model_validate({"key": "{k}", **facts})


def test_what_goes_together_is_taken() -> None:
    rule(run=1, concurrency=2)
    rule(run=1, rate="10/s")
    assert rule(batch=2).policy().batch == 2
    assert rule(batch=9).limit().is_none
    limit = rule(batch=9, batch_wait=2.0).limit()
    assert (limit.batch, limit.batch_wait, limit.is_serial, limit.is_none) == (9, 2.0, True, False)


def test_a_burst_goes_on_ten_times_as_long() -> None:
    assert rule().debouncing() is None
    assert rule(debounce=2, concurrency=3, rate="1/s").debouncing() == Debounce(2.0, 20.0)
    assert rule(debounce=2, debounce_max=2).debouncing() == Debounce(2.0, 2.0)


RULES: list[dict[str, Any]] = [
    {"app": "a", "key": "{k}", "max_queued": 3},
    {"app": "b", "key": "b{k}", "max_queued": 4, "debounce": 2},
    {"app": "c", "key": "c{k}"},
    {"app": "d", "key": "d{k}", "debounce": 2},
    {"app": "e", "key": "e{k}", "newest": "waiting"},
    {"app": "f", "key": "f{k}", "newest": "running", "newest_max": 9},
    {"app": "g", "key": "g{k}", "newest": "running", "max_queued": 5},
    {"app": "h", "key": "h{k}", "expires": 60},
]


@pytest.mark.parametrize(
    ("app", "delay", "packed"),
    [
        ("a", 0, b"3"),
        ("a", 9000, b'["t","","groups[0]","",false,false,3]'),
        ("b", 0, b'["t","","groups[1]","",2000000,20000000,4]'),
        ("c", 0, b""),
        ("d", 0, b'["t","","groups[3]","",2000000,20000000]'),
        ("e", 0, b'["t","","groups[4]","",0,0]'),
        ("f", 0, b'["t","","groups[5]","",0,0,false,0,9000000]'),
        ("g", 0, b'["t","","groups[6]","",0,0,5,0,60000000]'),
        ("h", 0, b'["t","","groups[7]","",false,false,false,60000000]'),
    ],
)
def test_what_a_rule_says_travels_with_its_messages(app: str, delay: int, packed: bytes) -> None:
    """Alone, or behind what scripts are told of a message anyway."""
    admission = Admission.of(Settings.model_validate({"groups": RULES}))
    body = b'{"app_name":"%s","type":"t","k":1}' % app.encode()
    arrival = admission.admit(Delivery(1, body, "m", None, {"x-delay": delay}, None))
    assert arrival.arguments()[8] == packed


def test_scripts_are_told_who_wants_to_know_of_drains() -> None:
    """And in which pool its type is. So there are limits, and `ordinary.lua` does nothing there."""
    types = ("x y", "p", "")
    groups = [each | {"on_drained": told} for each, told in zip(RULES[:3], types, strict=True)]
    sections: dict[str, Any] = {"groups": groups, "pools": {"couriers": {"types": ["p"]}}}
    packed = orjson.loads(pack(Settings.model_validate(sections).limits()))
    assert packed == ["dgroups[0]", " x y", "dgroups[1]", "couriers p", "d", "1"]


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("max_queued", (0, 2, 3)),
        ("debounce", (0, 2, 3)),
        ("expires", (0, 2, 3)),
        ("newest", ("", "waiting", "running")),
        ("newest_max", (0.001, 2, 60)),
    ],
)
def test_ticks_of_another_rule_are_another_definition(
    setting: str, values: Sequence[object]
) -> None:
    schedule = {"name": "s", "every": 5.0, "type": "t", "body": {"k": 1}}
    more = {"newest": "running"} if setting == "newest_max" else {}
    digests = set()
    for value in values:
        rules = [{"key": "{k}", **more, setting: value}]
        settings = Settings.model_validate({"groups": rules, "schedules": [schedule]})
        [definition] = definitions_of(settings)
        digests.add(definition.digest)
    assert len(digests) == 3


LIST = ["amqps://u:p%40@a/jobs", "amqps://u:p%40@b:5677/jobs", "amqps://u:p%40@[::1]:5678/jobs"]


def refusal(**section: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"rabbitmq": section})
    return "\n".join(map(str, problems_of(refused.value, {})))


def test_a_list_is_nodes_of_one_cluster() -> None:
    url = RabbitMQ.model_validate({"url": LIST}).url.get_secret_value()
    assert nodes_of(url) == LIST
    assert address_of(url) == "a,b:5677,[::1]:5678"
    assert "p%40" not in str(RabbitMQ.model_validate({"url": LIST}).url)
    assert nodes_of("amqp://a/") == ["amqp://a/"]
    one, same = ({"url": url} for url in (["amqp://a/"], "amqp://a/"))
    assert RabbitMQ.model_validate(one) == RabbitMQ.model_validate(same)
    for path in ("", "/"):  # the default virtual host, however it is written
        RabbitMQ.model_validate({"url": ["amqp://a/", f"amqp://b{path}"]})


def test_the_environment_and_the_file_may_have_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "groupflow.toml"
    file.write_text(f"[rabbitmq]\nurl = {LIST}\n")
    from_file = load_settings(file).rabbitmq.url.get_secret_value()
    monkeypatch.setenv("GROUPFLOW_RABBITMQ__URL", str(LIST).replace("'", '"'))
    assert load_settings().rabbitmq.url.get_secret_value() == from_file
    monkeypatch.setenv("GROUPFLOW_RABBITMQ__URL", "amqp://one/")
    assert nodes_of(load_settings(file).rabbitmq.url.get_secret_value()) == ["amqp://one/"]


OTHERS = ["amqps://u:p%40@b/other", "amqps://v:p%40@b/jobs", "amqps://u:secret@b/jobs",
          "amqp://u:p%40@b/jobs", "amqps://u:p%40@b/jobs?channel_max=3"]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "words"),
    [
        *(([LIST[0], other], "have to be nodes of one cluster") for other in OTHERS),
        *((wrong, "") for wrong in ([], [7], [["amqp://a/"]], {"a": 1})),
        ('["amqp://u:secret@a/', "as a list"),
        *((["amqp://u:secret@a/", no], "") for no in ("http://b/", "amqp://b:port/", "b")),
        (["amqp://u:secret@a/", "amqp://u:secret@/"], "Name the host"),
    ],
)
def test_what_is_no_list_of_nodes_is_refused(url: Any, words: str) -> None:
    said = refusal(url=url)
    assert said.startswith("rabbitmq.url")
    assert words in said
    assert "secret" not in said
    assert "p%40" not in said


def test_plaintext_to_any_other_machine_is_refused() -> None:
    settings = Settings.model_validate({"rabbitmq": {"url": ["amqp://localhost/", "amqp://b/"]}})
    with pytest.raises(ConfigError, match="plaintext"):
        settings.rabbitmq_url()


def test_partitions_are_a_number_and_leave_room_for_it() -> None:
    for partitions in (0, -1, 257, 1.5, True, "many"):
        assert "rabbitmq.partitions" in refusal(partitions=partitions)
    assert "Shorten queue to 122 bytes" in refusal(queue="q" * 123, partitions=11)
    RabbitMQ(queue="q" * 122, partitions=11)
    RabbitMQ(queue="q" * 255)


def test_names_that_the_client_library_refuses_are_refused_at_once() -> None:
    """A daemon would take each refusal for a RabbitMQ that is away."""
    for name in ("aufträge", "jobs!", "jobs\n"):
        assert "Use letters from A to Z" in refusal(queue=name)
        with pytest.raises(ValidationError, match="Use letters from A to Z"):
            Events(exchange=name)
    with pytest.raises(ValidationError, match="at most 127 characters"):
        Events(exchange="e" * 128)
    every = "a Z0-_.:@#,/+"
    commands.Exchange.Declare(exchange=Events(exchange=every * 9).exchange)
    commands.Queue.Declare(queue=RabbitMQ(queue=every).queue)
