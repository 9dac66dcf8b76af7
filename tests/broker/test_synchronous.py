"""`Publisher.sync()` on a real RabbitMQ: threads, forks, cursors, an end while others publish."""

from __future__ import annotations

import sys
import threading
from collections import UserDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest

import groupflow
from groupflow import GroupflowError, Message, Publisher
from groupflow.broker import blocking
from groupflow.servers import RabbitmqServer
from groupflow.servers.server import free_ports
from tests.broker.wires import taken
from tests.deadlines import deadline
from tests.programs import ran
from tests.running import run

BODY = {"app_name": "crm", "tenant_id": 42}


def ids_in(server: RabbitmqServer, queue: str, count: int) -> list[str]:
    return [str(each.message_id) for each in run(taken(server.url, queue, count))]


def test_it_publishes_from_any_thread(rabbitmq_server: RabbitmqServer, queue: str) -> None:
    with Publisher(rabbitmq_server.url, queue, declare=True).sync() as publisher:
        with ThreadPoolExecutor(8) as threads:
            messages = [Message(BODY, id=f"t{n}") for n in range(40)]
            told = [*threads.map(publisher.publish, messages)]
        assert publisher.publish(BODY, type="work", id="last", delay=3, priority=1) == "last"
        with pytest.raises(groupflow.Unroutable, match="JSON"):
            publisher.publish(b"no JSON")
        publisher.cancel("last", BODY)
    found = ids_in(rabbitmq_server, queue, 42)
    assert sorted(found[:40]) == sorted(told)
    assert found[40] == "last"
    with pytest.raises(GroupflowError, match="closed"):
        publisher.publish(BODY)
    publisher.close()  # again: nothing


def test_many_are_taken_in_the_callers_thread(
    rabbitmq_server: RabbitmqServer, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a database's cursor wants it; in order, and an error says how many are safe."""
    monkeypatch.setattr(blocking, "_AT_ONCE", 10)
    threads = set()

    def messages() -> Iterator[Message]:
        for n in range(25):
            threads.add(threading.get_ident())
            yield Message(BODY, id=f"m{n}")

    with Publisher(rabbitmq_server.url, queue, declare=True).sync() as publisher:
        assert publisher.publish_many(messages()) == [f"m{n}" for n in range(25)]
    assert threads == {threading.get_ident()}
    assert ids_in(rabbitmq_server, queue, 25) == [f"m{n}" for n in range(25)]

    with Publisher(rabbitmq_server.url, f"{queue}-missing").sync() as publisher:
        with pytest.raises(groupflow.QueueMissing) as missing:
            publisher.publish_many([Message(BODY)])
        assert missing.value.confirmed == 0


def test_a_close_ends_what_still_waits() -> None:
    """No thread waits for ever for a loop that has ended."""
    (port,) = free_ports(1)
    with pytest.raises(groupflow.BrokerUnavailable):
        Publisher(f"amqp://127.0.0.1:{port}/", timeout=0.2).sync().open()
    publisher = Publisher(f"amqp://127.0.0.1:{port}/", timeout=deadline()).sync()
    failed: list[BaseException] = []
    began = threading.Event()

    class Told(UserDict[str, object]):
        """A body that says when it is looked at, which is right before the wait."""

        def __iter__(self) -> Iterator[str]:
            began.set()
            return super().__iter__()

    def publish() -> None:
        try:
            publisher.publish(Told(BODY))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    assert began.wait(deadline())
    publisher.close()
    thread.join(deadline())
    assert [type(error) for error in failed] == [GroupflowError]


FORKED = """
import os, sys
from groupflow import Publisher
publisher = Publisher(sys.argv[1], sys.argv[2], declare=True).sync()
publisher.publish({"n": 0}, id="parent")
child = os.fork()
publisher.publish({"n": 1}, id="child" if child == 0 else "parent again")
if child == 0:
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_gets_a_connection_of_its_own(rabbitmq_server: RabbitmqServer, queue: str) -> None:
    """As the worker processes of gunicorn and Celery do; no end is closed, and yet it ends."""
    # From 3.12 on Python warns of every fork beside a thread, and the publisher has one.
    unwarned = ("-W", "ignore:This process:DeprecationWarning")
    done = ran(sys.executable, *unwarned, "-c", FORKED, rabbitmq_server.url, queue)
    assert (done.returncode, done.stderr) == (0, "")
    found = run(taken(rabbitmq_server.url, queue, 3))
    assert sorted(str(each.message_id) for each in found) == ["child", "parent", "parent again"]
    assert {orjson.loads(each.body)["n"] for each in found} == {0, 1}
