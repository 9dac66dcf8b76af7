"""Which task an id means: each partition knows only its own ids, so two may have the same id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupflow.core.errors import AmbiguousId, StoreUnavailable
from groupflow.core.scope import scope_of
from groupflow.operate.tasks import OVER, Found, find_task, read_envelope
from groupflow.operate.whole.namespace import Namespace
from groupflow.store.client import StoreClient


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
        facts.append(await _application(namespace, number, found))
        facts.append(f"tenant {found.tenant}" if found.tenant else "no tenant")
    return ", ".join(facts)


async def _application(namespace: Namespace, number: int, found: Found) -> str:
    """The application that its body or headers name, if its scope was made of that."""
    app = None
    try:
        envelope = await namespace.ask(number, lambda client: read_envelope(client, found.id))
    except StoreUnavailable:
        envelope = None
    if envelope is not None and namespace.router is not None:
        app = namespace.router().application_of(envelope.body, envelope.headers)
    if scope_of(app, found.tenant) != found.scope:
        return "application unknown"
    return f"application {app}" if app else "no application"
