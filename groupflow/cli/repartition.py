"""`groupflow repartition`: give a namespace another number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.options import argument, say
from groupflow.cli.verb import Answer, Call, note, verb

if TYPE_CHECKING:
    from groupflow.operate.repartition import Report

verbs = typer.Typer()


@verb(verbs, "repartition")
def repartition(
    call: Call, count: Annotated[int, argument("N", "How many it is to have.", min=1, max=1024)]
) -> Answer:
    """Move a namespace to another number of partitions, while no daemon runs.

    Groups keep their order; dead letters, and the memory of ids that came, are moved too. What is
    interrupted goes on when the same is given again; daemons refuse to start meanwhile. Then set
    redis.partitions to the new number. Exit 1 where daemons run, with their names.

    For example:

      groupflow repartition 16 --config groupflow.toml
    """
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.repartition import repartitioned
    from groupflow.store.partitions import open_partitions

    async def move() -> Report:
        report = await repartitioned(call.settings, count, lambda line: say(line, err=True))
        if report.before not in (0, count):
            partitions = open_partitions(call.settings)
            await note(Namespace(partitions), "repartitioned", before=report.before, now=count)
            await partitions.close()
        return report

    report, name = call.reach(move), call.settings.redis.namespace
    has, to_set = f"namespace {name} has {count} partitions", "set redis.partitions ="
    if report.before == 0:
        words = f"no daemon has used namespace {name} yet: {to_set} {count}"
    elif report.before == count:
        words = f"{has} already"
    else:
        words = f"{has}, no longer {report.before}: {to_set} {count}"
    return Answer(report, [words])
