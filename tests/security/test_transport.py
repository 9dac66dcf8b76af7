"""TLS is verified, and plaintext stays on the machine unless a setting allows it."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from rich.console import Console

from groupflow.broker.connection import connect
from groupflow.broker.publisher import Outgoing
from groupflow.core.app import App
from groupflow.core.errors import BrokerUnavailable, ConfigError, StoreUnavailable
from groupflow.core.task import Task
from groupflow.daemon import Daemon
from groupflow.demo.show import CONFIG, servers_for
from groupflow.flow.handling import Failed
from groupflow.flow.http_handlers import HttpRunner
from groupflow.servers import RedisServer
from groupflow.settings.load import load_settings
from groupflow.settings.model import Settings
from groupflow.settings.rules import HandlerRule
from groupflow.settings.transport import split_tls, stays_here
from groupflow.settings.urls import SecretUrl
from groupflow.store.client import StoreClient
from groupflow.store.keys import Keys
from tests.deadlines import deadline
from tests.ops.daemons import publish, serving
from tests.running import running
from tests.security.conftest import Authority, TlsRabbitmq, TlsRedis

HERE = [
    *("redis://localhost:6379/0", "redis://LOCALHOST/", "redis://:pw@127.0.0.1:1/0"),
    *("redis://127.8.9.1/", "redis://[::1]:6379/", "redis://[::ffff:127.0.0.1]/"),
    *("redis://redis.localhost/", "unix:///run/redis.sock"),
]
ELSEWHERE = [
    *("redis://redis:6379/0", "redis://10.0.0.1/", "redis://localhost.example/"),
    *("redis://127.0.0.1.example/", "redis://127.0.0.1@example/", "redis://0.0.0.0/"),
    *("redis://[::2]/", "redis://2130706433/"),
]


OFF = [
    *("rediss://h/?ssl_cert_reqs=none", "rediss://h/?db=1&SSL_check_hostname=False"),
    *("rediss://h/?%73sl_cert_reqs=none", "rediss://h/?ca_file=/tmp/ca"),
    *("amqps://h/?no_verify_ssl=1", "amqps://h/?heartbeat=3&cafile=x"),
]


def settings(section: str, **values: Any) -> Settings:
    return Settings.model_validate({section: values})


class TestPlaintext:
    @pytest.mark.parametrize("url", HERE + ELSEWHERE)
    def test_to_another_machine_it_is_refused(self, url: str) -> None:
        if url in ELSEWHERE:
            with pytest.raises(ConfigError, match="allow_plaintext"):
                Daemon(settings("redis", url=url), App(), "d")
        allowed = settings("redis", url=url, allow_plaintext=url in ELSEWHERE)
        assert allowed.redis_url() == url

    def test_rabbitmq_too(self) -> None:
        assert settings("rabbitmq").rabbitmq_url() == "amqp://guest:guest@localhost/"
        with pytest.raises(ConfigError) as caught:
            Daemon(settings("rabbitmq", url="amqp://u:hunter2@rabbit/v"), App(), "d")
        assert "hunter2" not in str(caught.value)
        assert "amqps://" in str(caught.value)


class TestSettings:
    @pytest.mark.parametrize("url", OFF)
    def test_a_url_can_not_switch_verification_off(self, url: str) -> None:
        with pytest.raises(ValidationError, match="always verified"):
            settings("redis" if "redis" in url else "rabbitmq", url=url)

    def test_files_without_tls_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="are for TLS"):
            settings("redis", ca_file="/ca.pem")
        with pytest.raises(ValidationError, match="cert_file"):
            settings("redis", url="rediss://h/", key_file="/k.pem")

    def test_files_that_are_none(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"redis\.ca_file .*no such file"):
            settings("redis", url="rediss://h/", ca_file=str(tmp_path / "none")).redis_url()
        (tmp_path / "bad").write_text("not PEM")
        with pytest.raises(ConfigError, match="must be PEM"):
            settings("redis", url="rediss://h/", ca_file=str(tmp_path / "bad")).redis_url()

    def test_the_files_travel_in_the_url(self, authority: Authority, tmp_path: Path) -> None:
        odd = tmp_path / "a & b?#%.pem"
        odd.write_bytes(Path(authority.ca).read_bytes())
        url = settings("redis", url="rediss://:p@h/2?db=3", ca_file=str(odd)).redis_url()
        assert stays_here(url) is False
        plain, context = split_tls(url)
        assert plain == "rediss://:p@h/2?db=3"
        assert context is not None
        assert context.check_hostname
        assert [each["subject"] for each in context.get_ca_certs()] == [
            ((("commonName", "ca of a test"),),)
        ]


async def _ping(found: Settings, seconds: float | None = None) -> None:
    keys = Keys("tls")
    client = StoreClient(found.redis_url(), keys, timeout=seconds or deadline())
    try:
        await client.ping()
    finally:
        await client.close()


class TestRedis:
    async def test_another_ca(self, tls_redis: TlsRedis, stranger: Authority) -> None:
        """The system's, by default, is none either; the right one is below."""
        for files in ({"ca_file": stranger.ca}, {}):
            with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await _ping(settings("redis", url=tls_redis.tls_url, **files))

    async def test_another_host_s_certificate(self, tmp_path: Path, authority: Authority) -> None:
        other = TlsRedis(tmp_path / "r", authority, "elsewhere", clients=False)
        mismatch = pytest.raises(StoreUnavailable, match=r"IP address mismatch|not valid for")
        with running(other) as server, mismatch:
            await _ping(settings("redis", url=server.tls_url, ca_file=authority.ca))

    async def test_our_own_certificate(
        self, tmp_path: Path, authority: Authority, stranger: Authority
    ) -> None:
        with running(TlsRedis(tmp_path / "r", authority, "server", clients=True)) as server:
            facts = {"url": server.tls_url, "ca_file": authority.ca}
            ours, theirs = (
                {"cert_file": each.path("client.pem"), "key_file": each.path("client.key")}
                for each in (authority, stranger)
            )
            await _ping(settings("redis", **facts, **ours))
            with pytest.raises(StoreUnavailable):
                await _ping(settings("redis", **facts, **theirs))

    async def test_tls_to_a_plain_port(self, redis_server: RedisServer) -> None:
        with pytest.raises(StoreUnavailable):
            await _ping(settings("redis", url=redis_server.url.replace("redis:", "rediss:")), 0.5)


async def test_the_demo_s_daemons_trust_what_its_file_says(
    authority: Authority,
    tls_redis: TlsRedis,
    tls_rabbitmq: TlsRabbitmq,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = tmp_path / "groupflow.toml"
    config.write_text(
        f'[rabbitmq]\nurl = "{tls_rabbitmq.tls_url}"\nca_file = "ca.pem"\n'
        f'[redis]\nurl = "{tls_redis.tls_url}"\nca_file = "ca.pem"\n'
    )
    monkeypatch.chdir(authority.folder)
    async with servers_for(config, Console(quiet=True)) as servers:
        for name, text in servers.environment().items():
            monkeypatch.setenv(name, text)
    monkeypatch.chdir(tmp_path)  # a daemon runs elsewhere
    found = load_settings(CONFIG)
    assert found.rabbitmq.ca_file == found.redis.ca_file == authority.ca
    assert found.rabbitmq_url().startswith(tls_rabbitmq.tls_url)
    await _ping(found)


async def test_another_ca_of_rabbitmq(tls_rabbitmq: TlsRabbitmq, stranger: Authority) -> None:
    """The right one is below."""
    for files in ({"ca_file": stranger.ca}, {}):
        url = settings("rabbitmq", url=tls_rabbitmq.tls_url, **files).rabbitmq_url()
        with pytest.raises(BrokerUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await connect(url, heartbeat=10, timeout=deadline(), name="t")


async def test_a_task_s_whole_way_over_tls(
    tls_redis: TlsRedis, tls_rabbitmq: TlsRabbitmq, authority: Authority
) -> None:
    """Published, taken in, run and settled, with no plaintext connection at all."""
    found = Settings.model_validate(
        {
            "redis": {"url": tls_redis.tls_url, "ca_file": authority.ca, "namespace": "overtls"},
            "rabbitmq": {"url": tls_rabbitmq.tls_url, "ca_file": authority.ca, "queue": "overtls"},
        }
    )
    app, done = App(), asyncio.Event()

    @app.handler("t")
    async def handle(task: Task) -> None:
        done.set()

    async with serving(found, app):
        await publish(found, Outgoing(b"{}", type="t"))
        await asyncio.wait_for(done.wait(), deadline())


async def test_a_broken_tls_stream_is_a_failed_attempt(authority: Authority) -> None:
    """The library hands on what TLS raises at a read, as where our certificate is wanted."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        os.write(writer.get_extra_info("socket").fileno(), b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.read()
        writer.close()

    offered = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    offered.load_cert_chain(authority.path("server.pem"), authority.path("server.key"))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=offered)
    port = server.sockets[0].getsockname()[1]
    url = f"https://127.0.0.1:{port}/hooks/T0KEN"
    trusted = ssl.create_default_context(cafile=authority.ca)
    async with server, asyncio.timeout(deadline()), httpx.AsyncClient(verify=trusted) as client:
        rule = HandlerRule(http=SecretUrl(url))
        outcome = await HttpRunner(rule, url, client).handle(Task("1", "t", body=b"{}"))
    assert isinstance(outcome, Failed)
    assert outcome.error == "SSLError"
    assert f"https://127.0.0.1:{port} did not answer" in outcome.message
    assert "T0KEN" not in outcome.message
