"""Certificates of our own making, and servers that speak TLS with them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from groupflow.servers import RabbitmqServer, RedisServer
from groupflow.servers.ports import free_ports
from groupflow.servers.rabbitmq import HASH_EXCHANGE
from groupflow.servers.server import PrivateServer
from tests.conftest import _run
from tests.deadlines import deadline

_Server = TypeVar("_Server", bound=PrivateServer)

# What SECURITY.md says that a CA must have, and what it signs.
_CA = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
_SIGNED = """\
basicConstraints=critical,CA:FALSE
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
"""


@contextmanager
def running(server: _Server) -> Iterator[_Server]:
    """The server, started; stopped at the end."""
    _run(server.start())
    try:
        yield server
    finally:
        _run(server.stop())


@dataclass(frozen=True)
class Authority:
    """A CA and what it signed.

    Attributes:
        folder: where the files are.
    """

    folder: Path

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def sign(self, name: str, alternatives: str) -> None:
        """A certificate and its key, `NAME.pem` and `NAME.key`."""
        request, extensions = self.path(f"{name}.csr"), self.folder / f"{name}.ext"
        extensions.write_text(_SIGNED + f"subjectAltName={alternatives}\n")
        _openssl(
            *("req", "-new", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-subj", f"/CN={name}", "-keyout", self.path(f"{name}.key"), "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.path("ca.key")),
            *("-CAcreateserial", "-days", "2", "-extfile", str(extensions)),
            *("-out", self.path(f"{name}.pem")),
        )


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=deadline())


def _authority(folder: Path) -> Authority:
    folder.mkdir()
    _openssl(
        *("req", "-x509", "-new", "-nodes", "-newkey", "ec"),
        *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=a test's CA", "-days", "2"),
        *_CA,
        *("-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.pem")),
    )
    return Authority(folder)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A CA that signed a server's certificate (for localhost and 127.0.0.1) and a client's."""
    found = _authority(tmp_path_factory.mktemp("tls") / "ours")
    found.sign("server", "DNS:localhost,IP:127.0.0.1")
    found.sign("elsewhere", "DNS:redis.example")
    found.sign("client", "DNS:client")
    return found


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another CA, which signed a client's certificate."""
    found = _authority(tmp_path_factory.mktemp("tls") / "theirs")
    found.sign("client", "DNS:client")
    return found


class TlsRedis(RedisServer):
    """Redis with a TLS port beside its plain one."""

    def __init__(self, folder: Path, authority: Authority, name: str, *, clients: bool) -> None:
        (self.tls_port,) = free_ports(1)
        super().__init__(
            folder,
            extra=(
                *("--tls-port", str(self.tls_port), "--tls-ca-cert-file", authority.ca),
                *("--tls-cert-file", authority.path(f"{name}.pem")),
                *("--tls-key-file", authority.path(f"{name}.key")),
                *("--tls-auth-clients", "yes" if clients else "no"),
            ),
        )

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
        """RabbitMQ opens its TLS listener last: whoever comes before is refused."""
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
def tls_rabbitmq(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[TlsRabbitmq]:
    with running(TlsRabbitmq(tmp_path_factory.mktemp("tls-rabbit"), authority)) as server:
        yield server
