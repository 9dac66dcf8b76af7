"""doctor: examines the servers in full, or in short for a daemon that starts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import asdict
from itertools import chain

import structlog

from groupflow.core.checkup import Check
from groupflow.core.errors import (
    BrokerUnavailable,
    ConfigError,
    GroupflowError,
    Problem,
    ServerUnreachable,
    StoreUnavailable,
)
from groupflow.doctor.local import examine_files, examine_http
from groupflow.doctor.rabbitmq import examine_rabbitmq
from groupflow.doctor.redis import examine_redis, judge_info, leader_of
from groupflow.doctor.table import judge
from groupflow.operate.namespace import Namespace, check_number
from groupflow.operate.reasons import duration, waiting
from groupflow.operate.schedules import Schedule, read_schedules
from groupflow.operate.totals import DaemonStatus, read_totals
from groupflow.operate.types import UnknownTypes, read_unknown_types
from groupflow.settings.load import Sources
from groupflow.settings.model import Settings
from groupflow.settings.transport import TLS_SCHEMES, address_of, split_url, stays_here
from groupflow.store.client import StoreClient
from groupflow.store.partitions import open_partitions

log = structlog.get_logger("groupflow.doctor")


async def examine(settings: Settings, sources: Sources) -> list[Check]:
    """Examine both servers, side by side, and the access to the page and our files.

    The checks are in the order to be read.

    Raises:
        ConfigError: the way to one of them isn't safe, a TLS file can't be used, or the namespace
            has another number of partitions.
    """
    store, broker = settings.redis_url(), settings.rabbitmq_url()
    schedules = await examine_namespace(settings)
    servers = await asyncio.gather(
        _examine_server("redis", store, examine_redis(settings)),
        _examine_server("rabbitmq", broker, examine_rabbitmq(settings)),
    )
    here = [*examine_http(settings.http), *examine_files(settings, sources)]
    return [*chain(*servers), *schedules, *here]


async def _examine_server(
    section: str, url: str, examination: Awaitable[list[Check]]
) -> list[Check]:
    """Whether the server can be reached, and how; and what is found there."""
    address, found, checks, is_refused = address_of(url), "", list[Check](), False
    try:
        checks = await examination
    except (StoreUnavailable, BrokerUnavailable, ServerUnreachable) as error:
        cause = str(error.__cause__ or "") or str(error)  # a timeout has no words
        is_refused = isinstance(error, ServerUnreachable)
        found = cause if address in cause else f"{address}: {cause}"
    facts = {"section": section, "address": address, "found": found, "is_refused": is_refused}
    is_tls = split_url(url).scheme in TLS_SCHEMES
    names = ("{section}.reachable", "{section}.transport")
    return judge(*names, **facts, is_tls=is_tls, stays_here=stays_here(url)) + checks


async def examine_namespace(settings: Settings) -> list[Check]:
    """The checks of daemons, schedules and types; none where Redis doesn't answer.

    Raises:
        ConfigError: the way to Redis isn't safe, or the namespace has another number of partitions.
    """
    partitions, found, unknown = open_partitions(settings), list[Schedule](), UnknownTypes([], [])
    pooled = {type_ for pool in settings.pools.values() for type_ in pool.types}
    told = {type_ for _, type_ in settings.limits().on_drained.values()}
    ticks = {schedule.type for schedule in settings.schedules}
    types = ({*settings.handlers} | ticks | told) - pooled
    daemons = list[Check]()
    try:
        await check_number(settings, partitions)
        daemons = judge_daemons((await read_totals(Namespace(partitions))).daemons)
        found = await read_schedules(Namespace(partitions))
        unknown = await read_unknown_types(Namespace(partitions), sorted(types))
    except ConfigError:
        raise
    except GroupflowError:
        pass  # the other checks say why
    finally:
        await partitions.close()
    wrong = [
        check
        for each in found
        for check in judge(
            "schedules.{name}",
            **asdict(each),
            is_nobodys=each.is_nobodys,
            away=duration(each.daemon_age),
        )
    ]
    schedules = wrong or judge("schedules", count=len(found))
    types_waiting = ", ".join(
        f"{each.type!r} ({waiting(each.tasks, 'task')}, for {duration(each.seconds)})"
        for each in unknown.waiting
    )
    facts = {"missing": ", ".join(map(repr, unknown.missing)), "waiting": types_waiting}
    return daemons + schedules + judge("types", "types waiting", **facts)


def judge_daemons(daemons: Sequence[DaemonStatus]) -> list[Check]:
    """Whether daemons live, and whose lease has run out."""
    late = [f"{each.name} ({duration(each.heartbeat_age)} ago)" for each in daemons if each.late]
    said = f"; whose lease has run out, by the last heartbeat: {', '.join(late)}" if late else ""
    return judge("daemons", running=len(daemons) - len(late), late=said)


async def check_at_start(client: StoreClient, settings: Settings) -> None:
    """Refuse a Redis that would lose tasks, and log other findings.

    The daemon starts even if Redis doesn't answer now, or refuses INFO.

    Raises:
        ConfigError: it evicts keys when memory is full, or is no node of a cluster where it should.
    """
    lease, wanted = settings.workers.lease, settings.redis.replicas
    leader, most, before = leader_of(settings.redis_url()), settings.redis.max_memory, time.time()
    try:
        info = await client.info("default")
    except StoreUnavailable as error:
        log.warning("doctor.not_checked", error=str(error))
        return
    except GroupflowError as error:
        log.warning("doctor.not_checked", error=str(error), remedy="Grant +info.")
        return
    at = (before + time.time()) / 2
    for check in judge_info(info, lease, at, wanted, leader, max_memory=most):
        if check.name in ("redis.eviction", "redis.cluster") and check.verdict == "fail":
            raise ConfigError([Problem("redis.url", "", f"{check.found}. {check.remedy}")])
        if check.verdict != "ok":
            log.warning("doctor.finding", check=check.name, found=check.found, remedy=check.remedy)
