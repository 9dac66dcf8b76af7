"""How `dead redrive` and `dead drop` act: on letters by id, or on all that a filter matches."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import confirm
from groupflow.cli.safe import say
from groupflow.cli.verb import Answer, Call
from groupflow.core.errors import (
    AmbiguousId,
    BodyUnfit,
    GroupflowError,
    GroupFull,
    NoRoomForDelay,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from groupflow.operate.dead import DeadLetter, Filter
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.tasks import Choice

_Act: TypeAlias = "Callable[[Namespace, DeadLetter], Awaitable[bool]]"
_Kept: TypeAlias = str | GroupflowError | None  # why a letter is as it was; None if it isn't


@dataclass(frozen=True, slots=True)
class DeadVerb:
    """What is done to dead letters."""

    name: str
    past: str  # of the name
    act: _Act  # says whether the letter was still there
    deletes: bool


def act_on(
    call: Call,
    verb_: DeadVerb,
    meant: list[str] | Filter,
    choice: Choice,
    *,
    dry_run: bool,
    yes: bool,
) -> Answer:
    """Count what a filter matches, or act, where need be once the user has said yes.

    Raises:
        typer.BadParameter: ids are to be counted; or there is no terminal to ask at.
    """
    if isinstance(meant, list):
        if dry_run:
            raise typer.BadParameter(
                "--dry-run counts what a filter or --all matches: name no ids."
            )
    elif dry_run or (not yes and (verb_.deletes or sys.stdin.isatty())):
        from groupflow.operate.bulk import count

        wanted = meant
        matching = call.ask(lambda namespace: count(namespace, wanted))
        if dry_run:
            told = f"{matching} dead letters match; without --dry-run each is {verb_.past}"
            return Answer({"matching": matching}, [told])
        confirm(f"{verb_.name} {matching} dead letters?", deletes=verb_.deletes)
    return _act_on_each(call, verb_, meant, choice)


def _act_on_each(call: Call, verb_: DeadVerb, wanted: list[str] | Filter, choice: Choice) -> Answer:
    """Act on letters that are named, or that pass a filter; say what kept others as they were."""
    is_by_id = isinstance(wanted, list)

    async def act_on_all(namespace: Namespace) -> tuple[list[tuple[str, _Kept]], bool]:
        from groupflow.operate.bulk import each_step
        from groupflow.operate.dead import DeadLetters
        from groupflow.operate.several import act_on_each

        letters, ends = DeadLetters(namespace), list[tuple[str, _Kept]]()

        async def act_on_one(meant: str | DeadLetter) -> str | None:
            letter = await letters.find(meant, choice) if isinstance(meant, str) else meant
            is_done = letter is not None and await verb_.act(namespace, letter)
            return None if is_done else "unknown"

        async def act_on_some(meant: Iterable[str | DeadLetter]) -> None:
            async for each, kept in act_on_each(meant, act_on_one, len(namespace)):
                ends.append((each if isinstance(each, str) else each.id, kept))
                is_counted = isinstance(kept, GroupFull) and not is_by_id
                if isinstance(kept, GroupflowError) and not is_counted:
                    say(f"{ends[-1][0]} stays: {kept}", err=True)

        if isinstance(wanted, list):
            await act_on_some(dict.fromkeys(wanted))
        else:
            async for some in each_step(namespace, wanted):
                # The oldest first: where a group has room for some, those that came first get it.
                await act_on_some(reversed(some))
        return ends, bool(namespace.away)

    ends, is_away = call.ask(act_on_all)
    acted = [id_ for id_, kept in ends if kept is None]
    unknown = [id_ for id_, kept in ends if isinstance(kept, str)] if is_by_id else []
    full = [id_ for id_, kept in ends if isinstance(kept, GroupFull)]
    refused = {"full": full} if full else {}
    words = [f"{len(full)} stay: their groups are full, as max_queued of their rules says"]
    end, failures = Exit.FINE, AmbiguousId | BodyUnfit | GroupFull | NoRoomForDelay
    if unknown or any(isinstance(kept, failures) for _, kept in ends):
        end = Exit.FAILED
    # Not all that may be meant could be reached.
    if (is_away and not is_by_id) or any(isinstance(kept, StoreUnavailable) for _, kept in ends):
        end = Exit.UNAVAILABLE
    return Answer(
        {verb_.past: acted, "unknown": unknown, **refused},
        [f"{verb_.past} {len(acted)}", *(words if full else [])],
        [f"no dead letter {id_}" for id_ in unknown],
        end,
    )
