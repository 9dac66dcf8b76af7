"""The simulated Redis server: the shipped scripts on a real Redis, one call at a time.

A real server runs each script. What would depend on the machine is the seed's: the clock, what
``INFO`` says, when wakes arrive, which replica holds what. Scripts are changed for that in three
places as they are loaded: ``TIME``, ``PUBLISH`` and ``INFO``. No script sets a time to live, so
the real server's own clock decides nothing.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import hiredis
from redis import Redis

from groupflow.store.scripts import AnyVerb, Order
from tests.simulation import clock
from tests.simulation.configured import scripts_of
from tests.simulation.network import Network, Transport

PIECE = 1 << 16  # bytes that are read at once; the allocator keeps a buffer of that size

_WAKES = b"sim:wakes"
_NO_SCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
_REPLIES = {
    b"HELLO": b"%1\r\n$5\r\nproto\r\n:3\r\n",
    b"PING": b"+PONG\r\n",
    **dict.fromkeys((b"CLIENT", b"AUTH", b"SELECT", b"UNSUBSCRIBE", b"SUNSUBSCRIBE"), b"+OK\r\n"),
}
_NULL = b"*-1\r\n"
_MEMORY = """# Memory\r
used_memory:1000000\r
maxmemory:0\r
maxmemory_policy:noeviction\r
total_system_memory:1000000000\r
"""
_INFO = (
    """# Server\r
redis_version:7.0.15\r
redis_mode:standalone\r
server_time_usec:{micros}\r
"""
    + _MEMORY
    + """# Persistence\r
loading:0\r
aof_enabled:1\r
aof_last_write_status:ok\r
rdb_last_bgsave_status:ok\r
# Replication\r
role:master\r
connected_slaves:{replicas}\r
master_replid:{id}\r
"""
)
_FRONT = "local SIM_TIME, SIM_INFO = KEYS[2], KEYS[3]"
_CHANGES = (
    (
        re.compile(r"call\('TIME'\)(?<![.\w]call\('TIME'\))"),  # what begins with a text is quick
        "{tonumber(string.sub(SIM_TIME, 1, -7)), tonumber(string.sub(SIM_TIME, -6))}",
    ),
    (re.compile(r"call\(PUBLISH, "), "call('RPUSH', 'sim:wakes', "),
    (re.compile(r"redis\.pcall\('INFO', section\)"), "SIM_INFO"),
)
_LEFT = ("'TIME'", "'INFO'", "(PUBLISH")


class NotRendered(Exception):
    """A script speaks of what a simulation can't give it."""


def changed(text: str) -> str:
    """A script whose clock, wakes and server are the simulation's."""
    for pattern, instead in _CHANGES:
        text = pattern.sub(instead, text)
    if found := [each for each in _LEFT if each in text]:
        raise NotRendered(f"a script still says {found[0]}")
    if text.startswith("#!"):
        first, rest = text.split("\n", 1)
        return f"{first}\n{_FRONT}\n{rest}"
    return f"{_FRONT}\n{text}"


class RealRedis:
    """The one connection to the real server, kept over all runs."""

    def __init__(self, path: str) -> None:
        """Connect to a Unix socket."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._reader = hiredis.Reader(replyError=RuntimeError)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        # A small hash keeps the order in which its fields came, a large one has a secret order.
        for setting in (b"hash-max-listpack-entries", b"hash-max-listpack-value"):
            self.ask([pack(b"CONFIG", b"SET", setting, b"100000000")])
        self._known: dict[tuple[Order, int, bool], frozenset[str]] = {}
        self._texts: dict[str, str] = {}  # by the names that the product knows
        self.loaded: dict[str, str] = {}
        """By the same, what those scripts are called at the real server that it has been given."""
        self.raw = VirtualRedis(unix_socket_path=path, protocol=2)
        self.raw.ask = self.ask
        """For those who look at what lies there."""

    def close(self) -> None:
        """Let the connections go."""
        self._socket.close()
        self.raw.close()

    def written(self, text: str) -> str:
        """A script as the real server is given it."""
        return changed(text)

    def know_all(self, order: Order, partitions: int, *, tells: bool) -> frozenset[str]:
        """Know every script of a namespace; the names that the product knows them by."""
        if (order, partitions, tells) not in self._known:
            scripts = [
                scripts_of(order, number, tells=tells)[verb]
                for number in (0, partitions)
                for room in AnyVerb.__subclasses__()
                for verb in room
            ]
            self._texts |= {script.sha: script.text for script in scripts}
            names = frozenset(script.sha for script in scripts)
            self._known[order, partitions, tells] = names
        return self._known[order, partitions, tells]

    def sha(self, sha: str) -> str:
        """What a script is called at the real server, which is given it at its first use."""
        if sha not in self.loaded:
            text = self.written(self._texts[sha])
            ((loaded,), _) = self.ask([pack(b"SCRIPT", b"LOAD", text.encode())])
            if isinstance(loaded, Exception):
                raise loaded
            self.loaded[sha] = loaded.decode()
        return self.loaded[sha]

    def ask(self, packed: list[bytes]) -> tuple[list[Any], bytes]:
        """Run commands; their replies, and the same as bytes."""
        self._socket.sendall(b"".join(packed))
        replies: list[Any] = []
        whole: list[bytes] = []
        while len(replies) < len(packed):
            data = self._socket.recv(PIECE)
            if not data:
                raise ConnectionError("the real Redis has ended")
            whole.append(data)
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                replies.append(reply)
        return replies, b"".join(whole)


class VirtualRedis(Redis):
    """A plain client of the real server, whose clock is the virtual one."""

    ask: Callable[[list[bytes]], tuple[list[Any], bytes]]

    def execute_command(self, *words: Any, **options: Any) -> Any:
        """What a command answers, at less cost than by the client's own way: looks are many."""
        (reply,), _ = self.ask([pack(*words)])
        if isinstance(reply, Exception):
            raise reply
        options.pop("keys", None)
        answers: dict[str, Any] = self.response_callbacks
        answer = answers.get(words[0])
        return reply if answer is None else answer(reply, **options)

    def time(self, **_: Any) -> Any:
        """Seconds and microseconds."""
        return divmod(clock.micros(), 1_000_000)


def pack(*words: bytes | str | int) -> bytes:
    return cast(bytes, hiredis.pack_command(words))  # type: ignore[arg-type]


_TAKE_WAKES = pack(b"LPOP", _WAKES, 100)  # a channel and a word each


class SimulatedRedis:
    """One server, as all processes see it."""

    def __init__(self, real: RealRedis, network: Network, note: Callable[[bytes], None]) -> None:
        """A server that is empty. `note` hears each call, in order."""
        self._real = real
        self._network = network
        self._note = note
        self.known: frozenset[str] = frozenset()
        """Scripts that this server has been given."""
        self.id = "1" * 40
        """As Redis names who leads."""
        self.task_state = 1
        """How often it has begun."""
        self.on_restart: Callable[[], None] = lambda: None
        self.began = 0.0
        """When its latest life began."""
        self.replicas = 0
        self.replica_hears = True
        self._subscribed: dict[_Session, set[bytes]] = {}
        self._kept: list[tuple[bytes, bytes]] = []  # what the replica has, once it hears no more
        self.calls = 0
        self.before_call: Callable[[], None] = lambda: None
        self.ask: Callable[[list[bytes]], tuple[list[Any], bytes]] = real.ask
        """How commands come to the real server."""
        network.accept = self._accept
        real.ask([pack(b"FLUSHALL")])

    def _accept(self, transport: Transport) -> _Session:
        return _Session(self, transport)

    def leave(self, session: _Session) -> None:
        self._subscribed.pop(session, None)

    # What faults do:

    def cut_replica(self) -> None:
        """The replica hears nothing from here on; it keeps what it has."""
        self.replica_hears = False
        self._kept = self._all()

    def fail_over(self) -> None:
        """The replica leads from here on; connections break, and what it has not heard is lost."""
        (names,), _ = self._real.ask([pack(b"KEYS", b"*")])
        commands = [pack(b"FLUSHALL")] if names else []
        commands += [pack(b"RESTORE", name, b"0", dump) for name, dump in self._kept]
        if commands:
            self._real.ask(commands)
        self.restart()

    def restart(self) -> None:
        """Another life of the server: another name, no scripts, no connections."""
        self.on_restart()
        self.task_state += 1
        self.id = f"{self.task_state:x}" * 40
        self.id = self.id[:40]
        self.known = frozenset()
        self.replica_hears = True
        self.began = clock.now()
        self._network.reset()

    def _all(self) -> list[tuple[bytes, bytes]]:
        (names,), _ = self._real.ask([pack(b"KEYS", b"*")])
        names = sorted(names)
        dumps, _ = self._real.ask([pack(b"DUMP", name) for name in names]) if names else ([], b"")
        return list(zip(names, dumps, strict=True))

    # What it answers:

    def info(self, section: bytes) -> bytes:
        """What it says of itself; of its memory alone, where daemons ask for that."""
        text = _INFO.format(micros=clock.micros(), replicas=self.replicas, id=self.id)
        whole = (_MEMORY if section == b"memory" else text).encode()
        return b"$%d\r\n%s\r\n" % (len(whole), whole)

    def answer(self, session: _Session, commands: list[list[bytes]]) -> None:
        """Run what has come in one piece, and answer it in one."""
        waiting: list[bytes] = []
        for command in commands:
            name = command[0].upper()
            own = self._own(session, name, command)
            if own is None:
                waiting.append(self._rewritten(name, command))
                continue
            self._forward(session, waiting)
            waiting = []
            later, reply = own
            session.transport.reply(reply, later)
        self._forward(session, waiting)

    def _own(
        self, session: _Session, name: bytes, command: list[bytes]
    ) -> tuple[float, bytes] | None:
        """What the simulation answers itself, and after how many seconds."""
        if name == b"EVALSHA":
            return None if command[1].decode() in self.known else (0.0, _NO_SCRIPT)
        if name == b"WAIT" and not self.replica_hears:
            return int(command[2]) / 1000, b":0\r\n"
        if name in (b"SUBSCRIBE", b"SSUBSCRIBE"):
            channels = self._subscribed.setdefault(session, set())
            channels.add(command[1])
            return 0.0, session.push(name.lower(), command[1], len(channels))
        if name == b"HELLO":
            session.protocol = 3
        reply = self.info(command[-1].lower()) if name == b"INFO" else _REPLIES.get(name)
        if name == b"WAIT":
            reply = b":%d\r\n" % self.replicas
        return None if reply is None else (0.0, reply)

    def _rewritten(self, name: bytes, command: list[bytes]) -> bytes:
        if name == b"EVALSHA":
            sha = self._real.sha(command[1].decode())
            replication = f"role:master\r\nmaster_replid:{self.id}\r\n"
            front, now = command[3], str(clock.micros())
            return pack(b"EVALSHA", sha, 3, front, now, replication, *command[4:])
        if name == b"SCRIPT" and command[1].upper() == b"LOAD":
            sha = command[2].decode()  # in place of its text: see `configured.by_name`
            self.known |= {sha}
            # Loading is done; an ECHO answers what the server would have, in its place.
            return pack(b"ECHO", sha)
        return pack(*command)

    def _forward(self, session: _Session, packed: list[bytes]) -> None:
        if not packed:
            return
        self.before_call()
        self.calls += 1
        replies, whole = self.ask([*packed, _TAKE_WAKES])
        wakes = replies.pop()
        tail = _NULL if wakes is None else _array(tuple(wakes))
        for each in packed:
            self._note(each)
        session.transport.reply(whole[: -len(tail)])
        pairs = iter(wakes or ())
        for channel, what in zip(pairs, pairs, strict=True):
            for listener, channels in self._subscribed.items():
                if channel in channels:
                    listener.transport.reply(listener.push(b"message", channel, what))


class _Session:
    """A connection, as the server sees it."""

    def __init__(self, server: SimulatedRedis, transport: Transport) -> None:
        self._server = server
        self.transport = transport
        self._reader = hiredis.Reader()
        self.protocol = 2

    def receive(self, data: bytes) -> None:
        """Commands have come."""
        self._reader.feed(data)
        commands: list[list[bytes]] = []
        while (command := self._reader.gets()) is not False:
            commands.append(cast(list[bytes], command))
        if commands:
            self._server.answer(self, commands)

    def hang_up(self) -> None:
        """It listens no more."""
        self._server.leave(self)

    def push(self, *words: bytes | int) -> bytes:
        """A message of a channel."""
        return (b">" if self.protocol == 3 else b"*") + _array(words)[1:]


@cache  # a run has few words
def _array(words: tuple[bytes | int, ...]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts.append(
            b":%d\r\n" % word if isinstance(word, int) else b"$%d\r\n%s\r\n" % (len(word), word)
        )
    return b"".join(parts)
