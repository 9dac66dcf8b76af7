"""Tasks: find one and what happened to it; drop one, or run it now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import orjson

from groupflow.core.errors import AmbiguousId, StoreUnavailable
from groupflow.core.progress import Progress
from groupflow.core.routing import scope_of
from groupflow.operate.corrections import Correction, read_corrections
from groupflow.operate.ended import EndName, read_line
from groupflow.operate.groups import Groups
from groupflow.operate.namespace import Namespace
from groupflow.operate.reasons import due_reason, not_due_reason, silence_reason
from groupflow.operate.requests import CancelRequest
from groupflow.operate.scripts import OperatorVerb, named
from groupflow.store.client import Argument, StoreClient
from groupflow.store.clock import seconds
from groupflow.store.envelope import Envelope
from groupflow.store.progress import progress_of
from groupflow.store.settlements import history_line
from groupflow.store.task_state import TaskState

StateName: TypeAlias = Literal["queued", "running", "delayed", "dead"] | EndName
OVER: frozenset[StateName] = frozenset(get_args(EndName))
Verdict: TypeAlias = Literal[
    "cancelled", "requested", "dead", "done", "superseded", "dropped", "expired", "unknown"
]
"""What a cancel came to; ``requested``: it is claimed, and ends with its attempt."""

Left: TypeAlias = Literal["running", "dead", "over", "due", "unknown"]
"""Why a task was left as it is; ``due``: it only waits for its turn."""

REASONS: dict[Left, str] = {
    "running": "it runs: a task that runs is left alone",
    "dead": "it is a dead letter: redrive or drop it as one",
    "over": "it is over",
    "due": "it has no delay of its own: it waits for its turn",
    "unknown": "nothing is known of it",
}

LOOKED_AT = 2000  # places in a line a script: bounds how long one may block Redis


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a task."""

    id: str
    # a dead letter that was dropped, or swept as it outlived its retention, has that state as long
    # as the history lasts
    state: StateName
    type: str
    group: str | None = None  # its group, None for a plain task
    tenant: str | None = None  # its tenant, if still known
    scope: str | None = None  # a digest of the application and tenant that own its id
    attempt: int = 1  # the attempt that runs or is next; of a finished task, the one that ended it
    crashes: int = 0  # how many claims of it ended with the death of their daemon
    lost_leases: int = 0  # and how many with a lost lease, without a known death
    stage: str | None = None  # the stage that it has reached
    pool: str | None = None  # whose workers pull it; None where daemons run it, or it is over
    daemon: str | None = None  # the one that runs it; of a task that is done, that ran it last
    worker: str | None = None  # within the daemon; this and `fence` only if it runs
    fence: int | None = None
    progress: Progress | None = None  # how far it has got, where it runs and its handler says so
    silence: str | None = None  # who takes it over, where nothing is heard of what runs it
    since: float | None = None  # Unix seconds since when it runs, is dead or is over
    until: float | None = None  # Unix seconds until when it is delayed, or at least queued
    start_by: float | None = None  # Unix seconds by which it has to start first, or had to
    # of a task that is done: when it came and when its last attempt began, Unix seconds; how many
    # seconds that took; its result, if it is kept, or why that can't be
    enqueued_at: float | None = None
    began_at: float | None = None
    seconds: float | None = None
    result: Any = None
    result_error: str | None = None
    reason: str | None = None
    superseded_by: str | None = None  # the newer task that replaced it, or is to where it runs
    cancelled_by: str | None = None  # who wanted it cancelled, or wants it of a task that runs
    asked_at: float | None = None  # Unix seconds since when, where it ran then
    # one entry for each failed attempt that is remembered, oldest first
    errors: list[dict[str, Any]] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)  # earlier bodies

    @property
    def request(self) -> CancelRequest | None:
        """Of a task that runs: the request to cancel it, if there is one."""
        if self.state != "running" or not (self.cancelled_by or self.superseded_by):
            return None
        return CancelRequest(self.cancelled_by, self.reason, self.asked_at, self.superseded_by)


async def _read_envelope(client: StoreClient, id_: str) -> Envelope | None:
    packed, row = await client.run(OperatorVerb.ENVELOPE, id_, "")
    return Envelope.unpack_any(packed, named(row).get("group")) if packed else None


async def find_task(client: StoreClient, id_: str) -> Found | None:
    """Find a task of one partition by its id; ``None`` as of `Tasks.find`."""
    times = ("died", "since", "start_by", "now", "delayed", "lease_left", "unheard")
    facts = named(await client.run(OperatorVerb.FIND, id_), *times)
    if "type" not in facts:
        return _ended(id_, facts) if "ended" in facts else None
    task_state = TaskState.of(facts["task_state"])
    shown = ("type", "group", "tenant", "scope", "start_by")
    known: dict[str, Any] = {name: facts.get(name) for name in shown}
    found = partial(
        Found,
        id=id_,
        **known,
        **task_state.told,
        pool=task_state.pool,
        errors=task_state.errors,
        corrections=read_corrections(facts.get("corrections", "")),
    )
    if "died" in facts:
        return found(state="dead", since=facts["died"], reason=task_state.reason)
    if "daemon" in facts:
        holder = {name: facts[name] for name in ("daemon", "worker", "since")}
        asked = CancelRequest.of(orjson.loads(facts["cancel"])).facts if "cancel" in facts else {}
        holder["progress"] = progress_of(facts.get("progress"), facts["now"])
        lease = facts["daemon"], facts["lease_left"], facts["unheard"]
        holder["silence"] = silence_reason(*lease) or None
        return found(state="running", fence=int(facts["fence"]), **holder, **asked)
    until = due if (due := seconds(task_state.due or 0)) > facts["now"] else None
    if facts.get("delayed", 0.0) > facts["now"]:
        return found(state="delayed", until=facts["delayed"], reason=not_due_reason(task_state))
    return found(state="queued", until=until, reason=due_reason(task_state, facts) or None)


def _ended(id_: str, facts: Mapping[str, Any]) -> Found | None:
    ended = read_line(facts["ended"])
    if ended["state"] == "moved":  # its dead letter, to another partition or scope
        return None
    return Found(id_, **ended, **orjson.loads(facts.get("result", "{}")))


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of several tasks with one id is meant; an attribute that is ``None`` lets all pass."""

    tenant: str | None = None  # its name; empty for tasks that name none
    partition: int | None = None

    def passes(self, found: Found) -> bool:
        """Whether it may be meant; the tenant of a task that is over isn't known."""
        is_known = self.tenant is not None and found.state not in OVER
        return not is_known or (found.tenant or "") == self.tenant


ANY = Choice()


async def choose(namespace: Namespace, id_: str, choice: Choice = ANY) -> tuple[int, Found] | None:
    """Find the task of an id, and its partition; ``None`` if none is meant.

    Raises:
        AmbiguousId: there are several.
        StoreUnavailable: no partition that answers has it, and some partition is away.
    """

    async def look(client: StoreClient) -> Found | None:
        found = await find_task(client, id_)
        return found if found is not None and choice.passes(found) else None

    found: Mapping[int, Found] = {}
    if choice.partition is None:
        found = await namespace.seek(look)
    elif choice.partition < len(namespace):
        task = await namespace.ask(choice.partition, look)
        found = {} if task is None else {choice.partition: task}
    meant = _meant(found, choice)
    if len(meant) > 1:
        raise AmbiguousId(
            id_, [await _described(namespace, number, each) for number, each in meant.items()]
        )
    return next(iter(meant.items()), None)


def _meant(found: Mapping[int, Found], choice: Choice) -> Mapping[int, Found]:
    """Those that may be meant: of one owner's tasks, living ones go before those that are over."""
    living = {number: each for number, each in found.items() if each.state not in OVER}
    has_one_owner = len({each.scope for each in found.values()}) == 1
    if living and (has_one_owner or choice.tenant is not None):
        return living
    return dict([*found.items()][:1]) if has_one_owner else found


async def _described(namespace: Namespace, number: int, found: Found) -> str:
    """How one of several differs from the others, in words."""
    facts = [f"partition {number}: {found.state}", f"type {found.type or 'none'}"]
    facts += [f"group {found.group}"] if found.group else []
    if found.state in OVER:
        facts.append(f"of application and tenant {found.scope or 'unknown'} (a digest)")
    else:
        app = await application_of(namespace, number, found.id, found.tenant, found.scope)
        named_app = f"application {app}" if app else "no application"
        facts.append("application unknown" if app is None else named_app)
        facts.append(f"tenant {found.tenant}" if found.tenant else "no tenant")
    return ", ".join(facts)


async def application_of(
    namespace: Namespace, number: int, id_: str, tenant: str | None, scope: str | None
) -> str | None:
    """The application that a task's body or headers name, if its scope was made of that.

    Empty where they name none, None where it isn't known.
    """
    app = envelope = None
    with suppress(StoreUnavailable):
        envelope = await namespace.ask(number, partial(_read_envelope, id_=id_))
    if envelope is not None and namespace.router is not None:
        app = namespace.router().application_of(envelope.body, envelope.headers)
    return app or "" if scope_of(app, tenant) == scope else None


class Tasks:
    """The tasks of a namespace; a `Choice` says which one, if several have one id.

    An id doesn't tell its partition, so all are searched. Each call may be made again.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    async def find(
        self, id_: str, choice: Choice = ANY, *, with_words: bool = True
    ) -> Found | None:
        """Find a task by its id, or ``None``: it never was, or isn't in the history any more.

        Of one that waits in a group its reason is that group's; without words as of `Groups.why`.

        Raises:
            AmbiguousId: several tasks have it.
            StoreUnavailable: no partition that answers has it, and some partition is away.
        """
        chosen = await choose(self._namespace, id_, choice)
        found = chosen and chosen[1]
        if not found or found.group is None or found.state not in {"queued", "delayed"}:
            return found
        why = await Groups(self._namespace).why(found.group, with_words=with_words)
        return replace(found, reason=why.reason_of(found.id, found.state, found.reason))

    async def envelope(self, id_: str, choice: Choice = ANY) -> Envelope | None:
        """The headers and the body of a task that waits or runs, or ``None``: it is over.

        For a dead letter see `DeadLetters.envelope`, which knows where its body lies.

        Raises:
            AmbiguousId: several tasks have the id.
            StoreUnavailable: no partition that answers has it, and some partition is away.
        """
        found = await choose(self._namespace, id_, choice)
        if found is None:
            return None
        return await self._namespace.ask(found[0], partial(_read_envelope, id_=id_))

    async def drop(self, id_: str, choice: Choice = ANY) -> Left | None:
        """Remove a task that waits, or is delayed, for good. Its group goes on.

        Returns:
            ``None`` if it is dropped, else why it was left.

        Raises:
            AmbiguousId: several tasks have the id.
            StoreUnavailable: no answer; it may be dropped.
        """
        return await self._act(id_, choice, _drop)

    async def cancel(self, id_: str, by: str, reason: str = "", choice: Choice = ANY) -> Verdict:
        """Cancel a task: one that waits ends now, one that is claimed with its attempt.

        Args:
            id_: the task's.
            by: who wants it, for the history.
            reason: why, likewise.
            choice: which one, if several have the id.

        Raises:
            AmbiguousId: several tasks have the id.
            StoreUnavailable: no answer; it may be cancelled, or be asked for.
        """
        chosen = await choose(self._namespace, id_, choice)
        if chosen is None:
            return "unknown"
        asked = partial(cancel_task, found=chosen[1], asked=orjson.dumps([by, reason]))
        return await self._namespace.ask(chosen[0], asked)

    async def run_now(self, id_: str, choice: Choice = ANY) -> Left | None:
        """Make a delayed task due.

        Returns:
            ``None`` if it is due from now on, else why it was left.

        Raises:
            AmbiguousId: several tasks have the id.
            StoreUnavailable: no answer; it may be due.
        """
        return await self._act(id_, choice, _run_now)

    async def _act(
        self,
        id_: str,
        choice: Choice,
        act: Callable[[StoreClient, Found], Awaitable[Left | None]],
    ) -> Left | None:
        chosen = await choose(self._namespace, id_, choice)
        if chosen is None:
            return "unknown"
        place, found = chosen
        return _left(found) or await self._namespace.ask(place, lambda client: act(client, found))

    async def delayed_of(self, group: str) -> tuple[list[str], Choice]:
        """The delayed tasks of a group, by bounded looks; one that moves may be missed.

        Those in its lane, the next to run first, come in front of those that stand aside. The
        choice is that of its partition.

        Raises:
            StoreUnavailable: its partition is away.
        """
        place = self._namespace.place_of(group)
        found = await self._namespace.ask(place, partial(_delayed_of, group=group))
        return found, Choice(partition=place)


async def _drop(client: StoreClient, found: Found) -> Left | None:
    past = (found.attempt, found.crashes)
    line = history_line("dropped", found.type, found.group, *past, lost=found.lost_leases)
    if await _end_waiting(client, found, line):
        return None
    # It was claimed, or ended, since: say which.
    return _left(await find_task(client, found.id)) or "running"


async def _end_waiting(client: StoreClient, found: Found, line: bytes) -> bool:
    """Remove a task from where it waits. False where it doesn't wait."""
    position: Sequence[Argument] = ("line", "")
    while position:
        is_gone, *position = await client.run(
            OperatorVerb.DROP_WAITING, found.id, found.group or "", line, *position, LOOKED_AT
        )
        if is_gone:
            return True
    return False


async def end_cancelled(client: StoreClient, id_: str, group: str) -> bool:
    """End a task that is to be cancelled, of a group or plain. False where it doesn't wait."""
    return await _end_waiting(client, Found(id_, "queued", "", group), b"")


async def cancel_task(client: StoreClient, found: Found, asked: bytes) -> Verdict:
    """Cancel a task of one partition; `asked` is who wants it, and why (JSON)."""
    if await client.run(OperatorVerb.CANCEL, found.id, asked):
        await _end_waiting(client, found, b"")
    now = await find_task(client, found.id)
    if now is None:
        return "unknown"
    state = "dead" if now.state == "swept" else now.state
    return "requested" if state in {"queued", "running", "delayed"} else state  # type: ignore[return-value]


async def _run_now(client: StoreClient, found: Found) -> Left | None:
    return None if await client.run(OperatorVerb.RUN_NOW, found.id, found.group or "") else "due"


async def _delayed_of(client: StoreClient, group: str) -> list[str]:
    lane, aside = await delayed_in(client, group, "lane"), await delayed_in(client, group, "aside")
    return [*reversed(lane), *aside]  # the next to run first


async def delayed_in(client: StoreClient, group: str, place: Literal["lane", "aside"]) -> list[str]:
    """The delayed tasks of a group in its lane, or of those that stand aside."""
    found: list[str] = []
    passed, looked = 0, LOOKED_AT
    while looked == LOOKED_AT:
        asked = (group, place, passed, LOOKED_AT)
        looked, some = await client.run(OperatorVerb.DELAYED_OF, *asked)
        passed += looked
        found += [id_.decode() for id_ in some]
    return found


def _left(found: Found | None) -> Left | None:
    """Why a task can't be dropped or run now, by its state; ``None`` if it can."""
    if found is None:
        return "unknown"
    if found.state in {"running", "dead"}:
        return found.state
    return "over" if found.state in OVER else None
