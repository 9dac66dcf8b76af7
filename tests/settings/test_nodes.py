"""`rabbitmq.url` as a list: the nodes of one cluster, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from groupflow.broker.connection import address_of, nodes_of
from groupflow.core.errors import ConfigError
from groupflow.settings.load import load_settings
from groupflow.settings.model import RabbitMQ, Settings
from groupflow.settings.problems import problems_of

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


@pytest.mark.parametrize(
    "others",
    [
        "amqps://u:p%40@b/other",
        "amqps://v:p%40@b/jobs",
        "amqps://u:q@b/jobs",
        "amqp://u:p%40@b/jobs",
        "amqps://u:p%40@b/jobs?channel_max=3",
    ],
)
def test_nodes_that_differ_are_refused(others: str) -> None:
    said = refusal(url=[LIST[0], others])
    assert "have to be nodes of one cluster" in said
    assert "p%40" not in said


@pytest.mark.parametrize(
    "url",
    [
        *([], [7], [["amqp://a/"]], '["amqp://u:secret@a/', {"a": 1}),
        *(["amqp://u:secret@a/", no] for no in ("http://b/", "amqp://b:port/", "b")),
        ["amqp://u:secret@a/", "amqp://u:secret@/"],
    ],
)
def test_what_is_no_list_of_nodes_is_refused(url: Any) -> None:
    said = refusal(url=url)
    assert said.startswith("rabbitmq.url")
    assert "secret" not in said


def test_plaintext_to_any_other_machine_is_refused() -> None:
    settings = Settings.model_validate({"rabbitmq": {"url": ["amqp://localhost/", "amqp://b/"]}})
    with pytest.raises(ConfigError, match="plaintext"):
        settings.rabbitmq_url()


def test_partitions_are_a_number_and_leave_room_for_it() -> None:
    for partitions in (0, -1, 257, 1.5, True, "many"):
        assert "rabbitmq.partitions" in refusal(partitions=partitions)
    assert "Shorten queue to 252 bytes" in refusal(queue="q" * 253, partitions=11)
    RabbitMQ(queue="q" * 252, partitions=11)
    RabbitMQ(queue="q" * 255)
