"""Certificates of our own making, and servers that speak TLS with them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.kinds import HASH_EXCHANGE
from groupflow.servers.server import free_ports
from tests.deadlines import deadline
from tests.running import running


@dataclass(frozen=True)
class Authority:
    """A CA and what it signed, as SECURITY.md says that they must be.

    Attributes:
        folder: where the files are.
    """

    folder: Path

    @property
    def ca(self) -> str:
        return self.path("ca.pem")

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def make(self, name: str, *facts: str) -> None:
        """A certificate and its key, `NAME.pem` and `NAME.key`."""
        words = ["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        words += ["-days", "2", "-subj", f"/CN={name} of a test", "-keyout"]
        words += [self.path(f"{name}.key"), "-out", self.path(f"{name}.pem"), *facts]
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=deadline())

    def sign(self, name: str, alternatives: str) -> None:
        self.make(
            name,
            *("-CA", self.ca, "-CAkey", self.path("ca.key")),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-addext", "keyUsage=critical,digitalSignature"),
            *("-addext", "extendedKeyUsage=serverAuth,clientAuth"),
            *("-addext", f"subjectAltName={alternatives}"),
        )


def authority_of(folder: Path) -> Authority:
    """A CA that signed servers' certificates (for this machine, and for another) and a client's."""
    found = Authority(folder)
    found.make("ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    found.sign("server", "DNS:localhost,IP:127.0.0.1")
    found.sign("elsewhere", "DNS:redis.example")
    found.sign("client", "DNS:client")
    return found


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority_of(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another CA."""
    return authority_of(tmp_path_factory.mktemp("tls"))


class TlsRedis(RedisServer):
    """Redis with a TLS port beside its plain one."""

    def __init__(self, folder: Path, authority: Authority, name: str, *, clients: bool) -> None:
        (self.tls_port,) = free_ports(1)
        told = {
            "port": str(self.tls_port), "ca-cert-file": authority.ca,
            "cert-file": authority.path(f"{name}.pem"), "key-file": authority.path(f"{name}.key"),
            "auth-clients": "yes" if clients else "no",
        }  # fmt: skip
        super().__init__(folder, extra=[f for n, v in told.items() for f in (f"--tls-{n}", v)])

    @property
    def tls_url(self) -> str:
        return f"rediss://127.0.0.1:{self.tls_port}/0"


class TlsRabbitmq(RabbitmqServer):
    """RabbitMQ with a TLS listener beside its plain one."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        super().__init__(folder, plugins=[HASH_EXCHANGE])
        (self.tls_port,) = free_ports(1)
        self._authority = authority

    def prepare(self) -> None:
        super().prepare()
        with (self.folder / "rabbitmq.conf").open("a") as file:
            file.write(
                f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}\n"
                f"ssl_options.cacertfile = {self._authority.ca}\n"
                f"ssl_options.certfile = {self._authority.path('server.pem')}\n"
                f"ssl_options.keyfile = {self._authority.path('server.key')}\n"
            )

    async def answers(self, pid: int) -> bool:
        """RabbitMQ opens its TLS listener last: before that it refuses each client."""
        if not await super().answers(pid):
            return False
        _, writer = await asyncio.open_connection("127.0.0.1", self.tls_port)
        writer.close()
        return True

    @property
    def tls_url(self) -> str:
        return f"amqps://guest:guest@127.0.0.1:{self.tls_port}/"


@pytest.fixture(scope="session")
def tls_redis(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[TlsRedis]:
    folder = tmp_path_factory.mktemp("tls-redis")
    with running(TlsRedis(folder, authority, "server", clients=False)) as server:
        yield server


@pytest.fixture(scope="session")
def tls_rabbitmq(tmp_path_factory: Any, authority: Authority) -> Iterator[TlsRabbitmq]:
    with running(TlsRabbitmq(tmp_path_factory.mktemp("tls-rabbit"), authority)) as server:
        yield server
