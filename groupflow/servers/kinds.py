"""A private Redis, and a private RabbitMQ with an Erlang port mapper (epmd) of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from groupflow.servers.server import PrivateServer, ask

_AMQP_0_9_1 = b"AMQP\x00\x00\x09\x01"

_CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users.guest = true
cluster_name = {identity}
log.console = true
log.file = false
disk_free_limit.absolute = 50MB
"""

HASH_EXCHANGE = "rabbitmq_consistent_hash_exchange"
"""The plugin that shares messages out among queues; Debian's package carries it."""


class RedisServer(PrivateServer):
    """``redis-server`` from PATH: durable to about a second, never evicting a key."""

    name: ClassVar[str] = "Redis"
    programs: ClassVar[Sequence[str]] = ("redis-server",)
    ready_within: ClassVar[float] = 20.0
    taken_marks: ClassVar[Sequence[str]] = ("Address already in use", "Failed listening on port")

    def __init__(
        self, folder: Path, *, extra: Sequence[str] = (), scratch: Path | None = None
    ) -> None:
        """As every `PrivateServer`; the extra arguments win over ours."""
        super().__init__(folder, scratch=scratch)
        self._extra = tuple(extra)

    @property
    def url(self) -> str:
        """Where a client connects to: database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        """The program and its arguments; it has no configuration file."""
        options = {
            "--bind": "127.0.0.1",
            "--port": str(self.port),
            "--dir": str(self.folder),
            "--appendonly": "yes",
            "--appendfsync": "everysec",
            "--save": "",
            "--maxmemory-policy": "noeviction",
        }
        flat = [word for option in options.items() for word in option]
        return [self.binary(), *flat, *self._extra]

    async def answers(self, pid: int) -> bool:
        """Whether this process answers PING, its data loaded."""
        reply = await ask(self.port, b"PING\r\nINFO server\r\nQUIT\r\n")
        if reply.startswith(b"-NOAUTH"):  # `extra` sets a password: it is up
            return True
        return reply.startswith(b"+PONG") and f"process_id:{pid}\r".encode() in reply


class RabbitmqServer(PrivateServer):
    """One RabbitMQ node: user ``guest``, ready in some seconds."""

    name: ClassVar[str] = "RabbitMQ"
    # Debian's /usr/sbin/rabbitmq-server runs the system's own node, as root through `su`; the
    # program behind it runs as any user.
    programs: ClassVar[Sequence[str]] = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
    ready_within: ClassVar[float] = 60.0
    stop_within: ClassVar[float] = 15.0
    port_count: ClassVar[int] = 3
    taken_marks: ClassVar[Sequence[str]] = ("eaddrinuse", "in use", "epmd error", "already bound")

    def __init__(
        self, folder: Path, *, plugins: Sequence[str] = (), scratch: Path | None = None
    ) -> None:
        """Describe a node; nothing is started.

        Args:
            folder: see `PrivateServer`.
            plugins: those to enable, such as `HASH_EXCHANGE`.
            scratch: see `PrivateServer`.
        """
        super().__init__(folder, scratch=scratch)
        self._plugins = tuple(plugins)

    @property
    def url(self) -> str:
        """Where a client connects to: the default virtual host."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def node(self) -> str:
        """Its name among Erlang's nodes."""
        return f"groupflow-{self.port}@localhost"

    @property
    def _identity(self) -> str:
        # Made of all its ports, so that no other node on this machine has it.
        return "groupflow-" + "-".join(map(str, self._ports))

    def command(self) -> list[str]:
        """The program; its environment has all that it must know."""
        return [self.binary()]

    def prepare(self) -> None:
        """Write the configuration for the ports chosen."""
        configuration = _CONFIGURATION.format(port=self.port, identity=self._identity)
        self._path("rabbitmq.conf").write_text(configuration)
        self._path("enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")

    def environment(self) -> dict[str, str]:
        """Every file and port that RabbitMQ would else take from the system's own node."""
        port, distribution, mapper = self._ports[:3]
        return super().environment() | {
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(self._path("data")),
            "RABBITMQ_LOG_BASE": str(self._path("log")),
            "RABBITMQ_LOGS": "-",  # stdout, which is our log file
            "ERL_CRASH_DUMP": str(self._path("erl_crash.dump")),
            "RABBITMQ_PID_FILE": str(self._path("pid")),
            "RABBITMQ_CONFIG_FILE": str(self._path("rabbitmq.conf")),
            "RABBITMQ_CONFIG_FILES": str(self._path("conf.d")),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self._path("advanced.config")),
            "RABBITMQ_CONF_ENV_FILE": str(self._path("rabbitmq-env.conf")),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._path("enabled_plugins")),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self._path("generated")),
            # The start script then *becomes* the node, without a shell in between; the second line
            # undoes that it lets a user type into the node.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_START_ARGS": "-noinput",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ("-kernel inet_dist_use_interface {127,0,0,1}"),
        }

    async def answers(self, pid: int) -> bool:  # noqa: ARG002  its own name identifies it
        """Whether this node answers an AMQP greeting with its Connection.Start."""
        identity = self._identity.encode()
        return identity in await ask(self.port, _AMQP_0_9_1, until=identity)

    def _path(self, name: str) -> Path:
        return self.folder / name
