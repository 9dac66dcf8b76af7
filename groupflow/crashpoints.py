"""Named points at which a test can have this process killed, as `kill -9` would.

They stand between two effects: the servers then hold exactly what the step before wrote. Without
`GROUPFLOW_CRASH_AT`, which names points and is read once at import, each costs one look at an empty
dict.

No point lies inside a script, which is atomic, nor between a call and its reply: a death there
leaves what a death right before or right after the call leaves, depending on whether it arrived.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "GROUPFLOW_CRASH_AT"

POINTS: Final = (
    "before_enqueue",  # a batch was taken from RabbitMQ, and only this process knows of it
    "before_ack",  # the batch is in Redis, and RabbitMQ still has it
    "after_ack",  # the ack is written to the connection
    "before_claim",  # an exchange that claims is about to be sent
    "after_claim",  # its reply was read, and no worker has its claim yet
    "before_handler",  # a worker has its claim
    "after_handler",  # the handler has ended, or was cancelled, and nothing is settled
    "before_settle",  # an exchange that settles is about to be sent
    "after_settle",  # its reply was read
    "after_register",  # a session was opened, and what its name had held was taken up
    "before_renew",
    "after_renew",
    "before_reap",
    "after_reap",  # tasks were taken over from another daemon
    "before_promote",
    "after_promote",  # something was promoted
    "before_tick",  # a schedule is due, and only this daemon knows that it has seen it
    "after_tick",  # its ticks are tasks
    "before_archive",  # bodies were read from dead letters, and lie nowhere else
    "after_archive",  # they lie in RabbitMQ too, and no letter knows
    "during_drain",  # no more is claimed; handlers may run still
    "hand_back",  # a running handler is about to be cancelled, so that its task can go back
    "before_leave",  # what was finished is settled, and the session still open
)

_armed: dict[str, int] = {}  # how many more passes until the kill


def arm(where: str) -> None:
    """Have this process killed at the nth pass of points, ``name:nth,…``, counted from 1.

    Forgets points armed before; an empty text arms none.

    Raises:
        ValueError: a name is of no point, or a number none from 1.
    """
    armed: dict[str, int] = {}
    for part in filter(None, where.split(",")):
        name, _, nth = part.strip().partition(":")
        if name not in POINTS:
            raise ValueError(f"{VARIABLE}: {name!r} is none of {', '.join(POINTS)}")
        if not nth.isdecimal() or int(nth) < 1:
            raise ValueError(f"{VARIABLE}: {part!r} is not NAME:NTH with a number from 1")
        armed[name] = int(nth)
    _armed.clear()
    _armed.update(armed)


def crash_point(name: str, happened: object = True) -> None:
    """Die here, if this pass is armed.

    A pass where nothing `happened` (an exchange without claims, say) doesn't count.
    """
    if _armed and happened and name in _armed:
        _armed[name] -= 1
        if _armed[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE, ""))
