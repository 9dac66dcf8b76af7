"""`groupflow repartition`: give a namespace another number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.options import say
from groupflow.cli.verb import Answer, Call, verb

if TYPE_CHECKING:
    from groupflow.operate.repartition import Report

verbs = typer.Typer()


@verb(verbs, "repartition")
def repartition(
    call: Call,
    count: Annotated[
        int, typer.Argument(metavar="N", min=1, max=1024, help="How many it is to have.")
    ],
) -> Answer:
    """Move a namespace to another number of partitions, while no daemon runs.

    Groups keep their order; dead letters, and the memory of ids that came, are moved too. What is
    interrupted goes on when the same is given again; daemons refuse to start meanwhile. Then set
    redis.partitions to the new number. Exit 1 where daemons run, with their names.

    For example:

      groupflow repartition 16 --config groupflow.toml
    """
    from groupflow.operate.repartition import Repartition
    from groupflow.store.client import StoreClient
    from groupflow.store.keys import Keys

    settings = call.settings
    url, redis, opened = settings.redis_url(), settings.redis, list[StoreClient]()

    def make(keys: Keys) -> StoreClient:
        opened.append(StoreClient(url, keys, settings.workers.order, timeout=redis.timeout))
        return opened[-1]

    async def move() -> Report:
        try:
            tell = lambda line: say(line, err=True)  # noqa: E731
            return await Repartition(redis.namespace, count, make, tell).run()
        finally:
            for client in opened:
                await client.close()

    report = call.reach(move)
    has, to_set = f"namespace {redis.namespace} has {count} partitions", "set redis.partitions ="
    if report.before == 0:
        words = f"no daemon has used namespace {redis.namespace} yet: {to_set} {count}"
    elif report.before == count:
        words = f"{has} already"
    else:
        words = f"{has}, no longer {report.before}: {to_set} {count}"
    return Answer(report, [words])
