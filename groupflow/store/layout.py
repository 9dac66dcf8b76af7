"""How many partitions a namespace has: what is noted, against what a configuration says.

The number is noted once for the namespace, under its tag without a number, and in each partition
under its own. So a daemon that slept while the namespace was moved can't write where no daemon
looks any more (`lua/layout.lua`).
"""

from __future__ import annotations

from groupflow.core.errors import OtherLayout, Problem

REFUSED = "REPARTITIONED"  # with the number noted, and to how many it is being moved or 0


def compare(name: str, count: int, known: int, moving_to: int) -> None:
    """Compare a configured number of partitions with what is noted.

    Args:
        name: of the namespace.
        count: how many the configuration says.
        known: how many it has.
        moving_to: how many it is on its way to, or 0.

    Raises:
        OtherLayout: they differ, or the namespace is being moved.
    """
    if moving_to:
        remedy = (
            f"Namespace {name!r} is on its way from {known} to {moving_to} partitions: let "
            f"`groupflow repartition {moving_to}` end first."
        )
    elif known != count:
        remedy = (
            f"Namespace {name!r} has {known}: set it to {known}, or move the namespace with "
            f"`groupflow repartition {count}`."
        )
    else:
        return
    raise OtherLayout([Problem("redis.partitions", str(count), remedy)])


def check_reply(reply: object, name: str, count: int) -> None:
    """Raise if a script was refused for that.

    Raises:
        OtherLayout: it was; it wrote nothing.
    """
    word, *numbers = str(reply).split(" ")
    if isinstance(reply, Exception) and word == REFUSED:
        compare(name, count, *map(int, numbers))
