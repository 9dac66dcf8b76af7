"""Every error that groupflow raises on purpose, each worded for the operator who will read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


class GroupflowError(Exception):
    """The base of all errors that groupflow raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration."""

    setting: str  # the setting's dotted name as written in the file, e.g. ``workers.lease``.
    value: str  # the offending value as an operator would recognise it; secrets arrive masked
    remedy: str  # what to do about it, as one sentence

    def __str__(self) -> str:
        shown = f" = {self.value}" if self.value else ""
        return f"{self.setting}{shown}: {self.remedy}"


class ConfigError(GroupflowError):
    """The configuration can't be used; `problems` names each setting, value and remedy."""

    def __init__(self, problems: list[Problem], source: str = "") -> None:
        self.problems = problems
        self.source = source
        where = f"{source}: " if source else ""
        super().__init__(where + "; ".join(str(problem) for problem in problems))


class OtherLayout(ConfigError):
    """A namespace has another format or number of partitions, or is being moved to another."""


class ServerUnreachable(GroupflowError):
    """Redis or RabbitMQ can't be reached. The message never carries a password."""

    def __init__(self, server: str, address: str, cause: str, setting: str = "") -> None:
        # `setting` says where it is; without one, the `url` of the server's section
        self.server = server
        self.address = address
        super().__init__(
            f"{server} at {address} can't be reached: {cause.rstrip('.')}. "
            f"Is it running, and is {setting or f'{server.lower()}.url'} right?"
        )


class StoreFull(GroupflowError):
    """Redis answered OOM: it has no memory left for new tasks. What is queued still drains."""


class StoreUnavailable(GroupflowError):
    """Redis did not answer in time or refused the call for now. The same call may be made again."""


class TooFewReplicas(StoreUnavailable):
    """Redis has a batch, and not as many replicas have it as `redis.replicas` says."""


class BrokerUnavailable(GroupflowError):
    """RabbitMQ can't be reached, or the connection to it has ended.

    Attributes:
        confirmed: as of `PublishFailed`.
    """

    confirmed = 0


@contextmanager
def reaching(server: str, address: str) -> Iterator[None]:
    """For callers that try once: raises `ServerUnreachable` where a server doesn't answer."""
    try:
        yield
    except (BrokerUnavailable, StoreUnavailable) as error:
        cause = str(error.__cause__ or "") or str(error)  # a timeout has no words
        raise ServerUnreachable(server, address, cause) from None


class PublishFailed(GroupflowError):
    """RabbitMQ did not take a message.

    Attributes:
        confirmed: of several messages that were published at once, how many of the first ones are
            safe. The one behind them failed; those behind that one may have been taken.
    """

    confirmed = 0


class QueueMissing(PublishFailed):
    """There is no such queue: it isn't declared yet, or was deleted."""


class PublishRefused(PublishFailed):
    """RabbitMQ said no: the queue is full, the message too large, or the user has no right to."""


class HeadersTooLarge(PublishRefused):
    """A message's headers are larger than the frame that RabbitMQ takes; nothing was sent."""


class ConfirmTimeout(PublishFailed):
    """No confirm came in time; the message may have been taken. Its id makes a second try safe."""


class ArchiveRefused(GroupflowError):
    """RabbitMQ keeps no dead letters' bodies: no streams, no right, or for too short a time."""


class BodyRefused(ArchiveRefused):
    """RabbitMQ has the stream, and refuses what was published to it."""


class AmbiguousId(GroupflowError):
    """Several tasks have an id that was to name one, so nothing was done."""

    def __init__(self, id_: str, tasks: Sequence[str]) -> None:
        """Names them; `tasks` has for each what tells it from the others."""
        super().__init__(
            f"{len(tasks)} tasks have the id {id_}: {'; '.join(tasks)}. "
            "Choose one by its tenant, or else by its partition"
        )


class BodyUnfit(GroupflowError):
    """A corrected body can't take a dead letter's place; the letter stays as it is."""


class BodyMissing(GroupflowError):
    """A dead letter's body is not where it was put in RabbitMQ's stream."""


class NoRoomForDelay(GroupflowError):
    """A dead letter would wait for the rest of its delay, and `redis.delayed_memory` is used up."""


class GroupFull(GroupflowError):
    """A dead letter's group has as many tasks that wait as its rule's `max_queued` lets it."""


class LetterArchived(GroupflowError):
    """A dead letter's body lies in RabbitMQ's stream: a redrive has to bring it along."""


class SessionLost(GroupflowError):
    """This daemon's lease ran out and its claims were handed on. It may open a new session."""


class PoolFull(GroupflowError):
    """A pool has as many workers as it may: one of another name gets no session until one ends."""


class NameTaken(GroupflowError):
    """A process that lives has this daemon's name. Two can't share one."""


class SessionReplaced(NameTaken):
    """Another process has registered under this daemon's name since."""


class Unroutable(GroupflowError):
    """A message that can't become a task; the reason is what its dead letter will say.

    Attributes:
        reason: why, in one line.
        scope: whose its id is, as far as the message tells (`groupflow.core.routing`).
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.scope = ""
        super().__init__(reason)


class TaskNotDone(GroupflowError):
    """A requested task has ended otherwise than done.

    Attributes:
        id: the task's.
        event: how it ended.
        reason: why, empty where nothing more is known.
    """

    def __init__(self, id: str, event: str, reason: str) -> None:
        self.id = id
        self.event = event
        self.reason = reason
        super().__init__(f"task {id!r} is {event}{f': {reason}' if reason else ''}")


class TaskDead(TaskNotDone):
    """It is a dead letter."""


class TaskCancelled(TaskNotDone):
    """It was cancelled."""


class TaskExpired(TaskNotDone):
    """It had to start by a time, and had not."""


class TaskSuperseded(TaskNotDone):
    """A newer task of its group replaced it; the reason is the id of that."""


class TaskDropped(TaskNotDone):
    """An operator removed it, or a pool's list did."""


class ResultRefused(GroupflowError):
    """A requested task is done, and its result is no JSON, or larger than it may be."""
