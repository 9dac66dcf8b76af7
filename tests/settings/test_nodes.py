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


def test_one_url_is_a_list_of_one() -> None:
    assert nodes_of("amqp://a/") == ["amqp://a/"]
    assert RabbitMQ.model_validate({"url": ["amqp://a/"]}) == RabbitMQ.model_validate(
        {"url": "amqp://a/"}
    )


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


@pytest.mark.parametrize("path", ["", "/"])
def test_the_default_virtual_host_is_one_however_it_is_written(path: str) -> None:
    RabbitMQ.model_validate({"url": ["amqp://a/", f"amqp://b{path}"]})


@pytest.mark.parametrize("url", [[], [7], [["amqp://a/"]], '["amqp://u:secret@a/', {"a": 1}])
def test_what_is_no_list_of_urls_is_refused(url: Any) -> None:
    said = refusal(url=url)
    assert said.startswith("rabbitmq.url")
    assert "secret" not in said


@pytest.mark.parametrize("wrong", ["http://b/", "amqp://b:port/", "amqp://u:secret@/", "b"])
def test_a_node_that_is_none_is_refused(wrong: str) -> None:
    said = refusal(url=["amqp://u:secret@a/", wrong])
    assert said.startswith("rabbitmq.url")
    assert "secret" not in said


def test_plaintext_to_any_other_machine_is_refused() -> None:
    settings = Settings.model_validate({"rabbitmq": {"url": ["amqp://localhost/", "amqp://b/"]}})
    with pytest.raises(ConfigError, match="plaintext"):
        settings.rabbitmq_url()


def test_partitions_leave_room_for_their_number() -> None:
    assert "Shorten queue to 252 bytes" in refusal(queue="q" * 253, partitions=11)
    RabbitMQ(queue="q" * 252, partitions=11)
    RabbitMQ(queue="q" * 255)


@pytest.mark.parametrize("partitions", [0, -1, 257, 1.5, True, "many"])
def test_partitions_are_a_number(partitions: Any) -> None:
    assert "rabbitmq.partitions" in refusal(partitions=partitions)
