"""How a namespace's keys are laid out: what is noted there, against what a daemon or verb believes.

Noted are the format of the keys, and the number of partitions: once for the namespace, under its
tag without a number, and in each partition under its own. So a daemon that slept while the
namespace was moved can't write where no daemon looks any more (`lua/layout.lua`).
"""

from __future__ import annotations

from groupflow.core.errors import OtherLayout, Problem

FORMAT = 2
"""Of the keys and what lies in them; another number when daemons of two versions can't share it."""
REFUSED = "LAYOUT"  # with the number noted, to how many it is being moved or 0, and the format


def compare(name: str, count: int, known: int, moving_to: int, format_: int) -> None:
    """Compare a configured number of partitions, and our format, with what is noted.

    Args:
        name: of the namespace.
        count: how many the configuration says.
        known: how many it has.
        moving_to: how many it is on its way to, or 0.
        format_: of its keys.

    Raises:
        OtherLayout: they differ, or the namespace is being moved.
    """
    check_format(name, format_)
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


def check_format(name: str, format_: int) -> None:
    """Compare the format of a namespace's keys with ours.

    Raises:
        OtherLayout: they differ.
    """
    if format_ != FORMAT:
        remedy = (
            f"Its keys are of format {format_}, and this groupflow has format {FORMAT}: run the "
            "version that wrote them until nothing waits there, or name another namespace."
        )
        raise OtherLayout([Problem("redis.namespace", name, remedy)])
