"""doctor: examines the servers in full, or in short for a daemon that starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

import structlog

from groupflow.broker.connection import address_of as broker_address
from groupflow.core.checkup import Check, Verdict
from groupflow.core.errors import (
    BrokerUnavailable,
    ConfigError,
    GroupflowError,
    Problem,
    ServerUnreachable,
    StoreUnavailable,
)
from groupflow.core.urls import split_url
from groupflow.doctor.files import examine_files
from groupflow.doctor.http import examine_http
from groupflow.doctor.partitions import examine_partitions
from groupflow.doctor.rabbitmq import examine_broker
from groupflow.doctor.redis import CLUSTER, EVICTION, examine_at_start
from groupflow.doctor.schedules import examine_schedules
from groupflow.operate.whole.namespace import check_number
from groupflow.settings.load import Sources
from groupflow.settings.model import Settings
from groupflow.settings.transport import TLS_SCHEMES, stays_here
from groupflow.store.client import StoreClient
from groupflow.store.partitions import keys_of, open_partitions
from groupflow.store.refusals import address_of as store_address

log = structlog.get_logger("groupflow.doctor")

BROKER_TIMEOUT = 10.0  # seconds for RabbitMQ's handshake


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of an examination."""

    checks: list[Check]  # in the order to be read
    unreachable: bool  # whether a server gave no answer, or refused the credentials

    @property
    def worst(self) -> Verdict:
        verdicts = {check.verdict for check in self.checks}
        return "fail" if "fail" in verdicts else "warn" if "warn" in verdicts else "ok"


async def examine(settings: Settings, sources: Sources) -> Findings:
    """Examine both servers, side by side, and the access to the page and our files.

    Raises:
        ConfigError: the way to one of them isn't safe, a TLS file can't be used, or the namespace
            has another number of partitions.
    """
    redis, rabbitmq = settings.redis, settings.rabbitmq
    redis_url, rabbitmq_url = settings.redis_url(), settings.rabbitmq_url()
    lease, history = settings.workers.lease, settings.history
    every = keys_of(redis.namespace, redis.partitions)
    await _check_number(settings)
    servers = await asyncio.gather(
        _examine_server(
            "redis",
            redis_url,
            store_address(redis_url),
            examine_partitions(redis_url, every, lease, redis.timeout, redis.replicas),
        ),
        _examine_server(
            "rabbitmq",
            rabbitmq_url,
            broker_address(rabbitmq_url),
            examine_broker(
                rabbitmq_url,
                rabbitmq.queue,
                BROKER_TIMEOUT,
                history.dead_retention,
                partitions=rabbitmq.partitions,
                trusts_policy=history.dead_policy,
                management=rabbitmq.management.get_secret_value(),
            ),
        ),
    )
    return Findings(
        checks=[
            *(check for server in servers for check in server.checks),
            *await examine_schedules(settings),
            *examine_http(settings.http),
            *examine_files(settings, sources),
        ],
        unreachable=any(server.unreachable for server in servers),
    )


async def _check_number(settings: Settings) -> None:
    """Check the configured number of partitions against the namespace's, if Redis tells it.

    Raises:
        ConfigError: it is another.
    """
    partitions = open_partitions(settings)
    try:
        await check_number(settings, partitions)
    except ConfigError:
        raise
    except GroupflowError:
        return  # the other checks say why
    finally:
        await partitions.close()


async def _examine_server(
    section: str, url: str, address: str, examination: Awaitable[list[Check]]
) -> Findings:
    try:
        found = await examination
    except (StoreUnavailable, BrokerUnavailable, ServerUnreachable) as error:
        return _unreachable(section, address, error)
    reached = Check(f"{section}.reachable", "ok", address)
    return Findings([reached, _transport(section, url), *found], unreachable=False)


def _unreachable(section: str, address: str, error: GroupflowError) -> Findings:
    cause = str(error.__cause__ or error)
    remedy = f"Is it running, and is {section}.url right?"
    if "CERTIFICATE_VERIFY_FAILED" in cause:
        remedy = f"Its certificate isn't of a CA that is trusted here: set {section}.ca_file to it."
    elif isinstance(error, ServerUnreachable):
        remedy = f"Are user and password in {section}.url right (percent-encoded)?"
    found = cause if address in cause else f"{address}: {cause}"
    return Findings([Check(f"{section}.reachable", "fail", found, remedy)], unreachable=True)


def _transport(section: str, url: str) -> Check:
    name = f"{section}.transport"
    scheme = split_url(url).scheme
    if scheme in TLS_SCHEMES:
        return Check(name, "ok", "TLS, the server's certificate is verified")
    if stays_here(url):
        return Check(name, "ok", "plaintext, within this machine")
    remedy = (
        f"Use TLS unless the network itself is safe; it was allowed by {section}.allow_plaintext."
    )
    return Check(name, "warn", "plaintext to another machine", remedy)


async def check_at_start(client: StoreClient, settings: Settings) -> None:
    """Refuse a Redis that would lose tasks, and log other findings.

    The daemon starts even if Redis doesn't answer now, or refuses INFO.

    Raises:
        ConfigError: it evicts keys when memory is full, or is no node of a cluster where it should.
    """
    try:
        checks = await examine_at_start(
            client, settings.workers.lease, settings.redis_url(), settings.redis.replicas
        )
    except StoreUnavailable as error:
        log.warning("doctor.not_checked", error=str(error))
        return
    except GroupflowError as error:
        log.warning("doctor.not_checked", error=str(error), remedy="Grant +info.")
        return
    for check in checks:
        if check.name in (EVICTION, CLUSTER) and check.verdict == "fail":
            raise ConfigError([Problem("redis.url", "", f"{check.found}. {check.remedy}")])
        if check.verdict != "ok":
            log.warning("doctor.finding", check=check.name, found=check.found, remedy=check.remedy)
