"""doctor: whether a daemon has each schedule, and all that have it have the same one."""

from __future__ import annotations

from groupflow.core.checkup import Check
from groupflow.core.errors import GroupflowError
from groupflow.operate.schedules import Schedule
from groupflow.operate.whole.namespace import Namespace
from groupflow.operate.whole.schedules import read_schedules
from groupflow.settings.model import Settings
from groupflow.store.partitions import open_partitions


async def examine_schedules(settings: Settings) -> list[Check]:
    """The checks of schedules; empty where there are none, or Redis doesn't answer.

    Raises:
        ConfigError: the way to Redis isn't safe.
    """
    partitions = open_partitions(settings)
    try:
        found = await read_schedules(Namespace(partitions))
    except GroupflowError:
        return []  # the other checks say why
    finally:
        await partitions.close()
    wrong = [check for each in found for check in _checks(each)]
    if not found or wrong:
        return wrong
    return [Check("schedules", "ok", f"{len(found)}, each of one definition, and with a daemon")]


def _checks(schedule: Schedule) -> list[Check]:
    name = f"schedules.{schedule.name}"
    if schedule.rival:
        found = f"daemon {schedule.rival} has another definition of it than {schedule.daemon}"
        remedy = (
            f"That of {schedule.daemon} counts, whose configuration was loaded later: give both "
            "the same, and reload."
        )
        return [Check(name, "warn", found, remedy)]
    if schedule.is_nobodys:
        found = f"no daemon has had it for {schedule.daemon_age:.0f} s; {schedule.daemon} was last"
        remedy = (
            "Start a daemon with it, or forget it: groupflow schedules drop "
            f"{schedule.name}. It makes no ticks."
        )
        return [Check(name, "warn", found, remedy)]
    return []
