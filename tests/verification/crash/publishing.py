"""The broker's side of trials, in a process of its own with one connection for all of them.

The processes that fork daemons can have neither threads nor a running loop; so this one publishes,
counts and deletes for them, told so by JSON lines over a socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import orjson
from aio_pika.abc import AbstractConnection

from groupflow.broker import topology
from groupflow.broker.connection import connect, open_channel
from groupflow.broker.dead_stream import name_of
from groupflow.broker.publisher import Address, Outgoing, TermPublisher
from tests.history.events import Journal, published
from tests.verification.crash.daemons import TYPE, die_with_parent
from tests.verification.crash.plans import Message


class Broker:
    """The other end of the socket: what a trial asks of RabbitMQ. Calls block."""

    def __init__(self, url: str) -> None:
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            ours.close()
            try:
                die_with_parent()
                asyncio.run(_serve(url, theirs))
            finally:
                os._exit(0)
        theirs.close()
        self._file = ours.makefile("rwb")
        self._socket = ours

    def publish(self, queue: str, messages: list[Message], journal: Path) -> None:
        """Begin to publish; `answer` tells the end. Each confirm is journalled as it comes."""
        self._tell("publish", queue=queue, messages=messages, journal=str(journal))

    def answer(self) -> Any:
        """Wait for what was begun."""
        reply = orjson.loads(self._file.readline())
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply["answer"]

    def close(self) -> None:
        """End the process."""
        self._file.close()
        self._socket.close()
        os.waitpid(self._pid, 0)

    def ask(self, do: str, queue: str) -> Any:
        """Declare, count or delete a queue: what `_do` knows."""
        self._tell(do, queue=queue)
        return self.answer()

    def _tell(self, do: str, **what: Any) -> None:
        self._file.write(orjson.dumps({"do": do, **what}) + b"\n")
        self._file.flush()


async def _serve(url: str, end: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=end, limit=2**22)
    connection = await connect(url, heartbeat=60, timeout=30.0, name="crash trials")
    async with connection:
        channel = await open_channel(connection, confirms=True)
        while line := await reader.readline():
            told = orjson.loads(line)
            try:
                reply = {"answer": await _do(connection, channel, told)}
            except Exception as error:
                reply = {"error": repr(error)}
            writer.write(orjson.dumps(reply) + b"\n")
            await writer.drain()


async def _do(connection: AbstractConnection, channel: Any, told: dict[str, Any]) -> Any:
    queue = told["queue"]
    match told["do"]:
        case "declare":
            await topology.declare(connection, queue)
        case "count":
            return (await channel.queue_declare(queue, passive=True)).message_count
        case "delete":
            await topology.delete(connection, queue)
            await topology.delete(connection, name_of(queue))
            await channel.exchange_delete(name_of(queue))
        case "publish":
            messages = [Message(**message) for message in told["messages"]]
            journal = Journal(Path(told["journal"]))
            unconfirmed = iter(messages)

            def on_confirm() -> None:
                message = next(unconfirmed)
                journal.write(published(message.id, message.group, n=message.n))

            publisher = TermPublisher(channel, Address(queue), timeout=30.0)
            await publisher.publish_all(map(_outgoing, messages), on_confirm)
    return None


BALLAST = "x" * 1000  # a body that is worth archiving


def _outgoing(message: Message) -> Outgoing:
    body: dict[str, Any] = {"n": message.n, "what": message.what, "seconds": message.seconds}
    if message.group is not None:
        body |= {"app_name": "grouped", "group": message.group}
    if message.what == "poison":
        body |= {"ballast": BALLAST}
    if message.what == "delayed":
        body |= {"delay": message.seconds, "seconds": 0.0}
    return Outgoing(orjson.dumps(body), type=TYPE, message_id=message.id)
