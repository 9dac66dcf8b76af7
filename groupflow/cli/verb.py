"""What a one-shot verb is: it takes a call and returns an answer, which is printed here."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import (
    ConfigOption,
    JsonOption,
    PlainVerb,
    print_json,
    say,
    user_name,
)
from groupflow.core.errors import AmbiguousId, GroupflowError, reaching

if TYPE_CHECKING:
    from groupflow.operate.namespace import Away, Namespace
    from groupflow.settings.model import Settings

_Found = TypeVar("_Found")
_Verb = TypeVar("_Verb", bound="Callable[..., Answer | None]")

_USUAL = (
    Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption),
    Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb found, and how it ends."""

    value: Any  # printed with --json
    text: Iterable[str] | Callable[[], None]  # said without: lines, or what prints a table
    errors: Sequence[str] = ()  # said on stderr in any case
    exit: Exit = Exit.FINE


@dataclass(frozen=True)
class Call:
    """How a verb was called, and what it may ask."""

    config: Path | None
    as_json: bool

    def load(self) -> Settings:
        """The configuration, read once more.

        Raises:
            ConfigError: it can't be used.
        """
        from groupflow.settings.load import load_settings

        return load_settings(self.config)

    settings = cached_property(load)

    def ask(self, ask: Callable[[Namespace], Awaitable[_Found]]) -> _Found:
        """Ask the store one thing: connect, agree, ask, close.

        Where some partitions don't answer and others do, stderr names them.

        Raises:
            ConfigError: the configuration can't be used, or isn't the namespace's.
            ServerUnreachable: Redis does not answer, or refused the credentials.
        """
        from groupflow.operate.namespace import Namespace, check_number
        from groupflow.store.partitions import open_partitions

        async def ask_once() -> _Found:
            partitions = open_partitions(self.settings)
            namespace = Namespace(partitions, self.settings.router)
            try:
                await check_number(self.settings, partitions)
                answer = await ask(namespace)
            finally:
                await partitions.close()
            for away in namespace.away:
                say(str(away), err=True)
            return answer

        return self.reach(ask_once)

    def act(self, what: str, act: Callable[[Namespace], Awaitable[_Found]], **facts: Any) -> _Found:
        """The same for what changes something; it is noted, unless the answer is ``False``."""

        async def act_and_note(namespace: Namespace) -> _Found:
            found = await act(namespace)
            if found is not False:
                await note(namespace, what, **facts)
            return found

        return self.ask(act_and_note)

    def reach(self, work: Callable[[], Coroutine[Any, Any, _Found]]) -> _Found:
        """Do something with the configured Redis.

        Raises:
            ServerUnreachable: it does not answer, or refused the credentials.
        """
        from groupflow.settings.transport import address_of

        with reaching("Redis", address_of(self.settings.redis_url())):
            return asyncio.run(work())


def say_passed(namespace: Namespace, passed: Iterable[Away]) -> None:
    """Name on stderr the partitions that a walk has passed over, and that have answered since."""
    away = {each.partition for each in namespace.away}  # those are named at the end
    for each in passed:
        if each.partition not in away:
            say(str(each), err=True)


async def note(namespace: Namespace, what: str, **facts: Any) -> None:
    """Note what the user did, for `groupflow actions`; stderr says where that fails."""
    from groupflow.operate.actions import note as note_action

    try:
        await note_action(namespace, what, user_name(), **facts)
    except GroupflowError as error:
        say(f"done, but not noted among the actions: {error}", err=True)


def verb(family: typer.Typer, name: str, *, has_json: bool = True) -> Callable[[_Verb], _Verb]:
    """Make a function a verb, with `--config` and `--json`; its docstring is the verb's help.

    A parameter that is a dataclass stands for options that several verbs share: its fields.
    """

    def register(function: _Verb) -> _Verb:
        own = [*inspect.signature(function, eval_str=True).parameters.values()][1:]
        shared = {
            each.name: cast(type[Any], each.annotation)
            for each in own
            if is_dataclass(each.annotation)
        }

        def called(*, config: Path | None, as_json: bool = False, **values: Any) -> None:
            for which, kind in shared.items():
                values[which] = kind(**{each.name: values.pop(each.name) for each in fields(kind)})
            _print(function, Call(config, as_json), values)

        options, usual = list[Parameter](), _USUAL if has_json else _USUAL[:1]
        for each in own:
            kind = shared.get(each.name)
            parameters = inspect.signature(kind, eval_str=True).parameters if kind else {"": each}
            options += [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters.values()]
        called.__signature__ = inspect.Signature([*options, *usual])  # type: ignore[attr-defined]
        family.command(name, cls=PlainVerb, help=inspect.getdoc(function))(called)
        return function

    return register


def listing(family: typer.Typer, name: str) -> Callable[[_Verb], _Verb]:
    """Make a function what a family of verbs does when none of them is named."""

    def register(function: _Verb) -> _Verb:
        @family.callback(invoke_without_command=True)
        def called(
            context: typer.Context, *, config: ConfigOption = None, as_json: JsonOption = False
        ) -> None:
            if context.invoked_subcommand is None:
                _print(function, Call(config, as_json), {})
            elif as_json or config != context.find_root().params.get("config"):
                words = f"groupflow {name} {context.invoked_subcommand} NAME --config FILE"
                raise typer.BadParameter(f"Put options behind the verb: {words}.")

        return function

    return register


def _print(function: Callable[..., Answer | None], call: Call, values: dict[str, Any]) -> None:
    try:
        answer = function(call, **values)
    except AmbiguousId:
        if call.as_json:
            print_json(None)
        raise
    if answer is None:  # it has printed all by itself
        return
    if call.as_json:
        print_json(answer.value)
    elif callable(answer.text):
        answer.text()
    else:
        for line in answer.text:
            say(line)
    for line in answer.errors:
        say(line, err=True)
    if answer.exit:
        raise typer.Exit(answer.exit)


def failed(line: str) -> typer.Exit:
    """Say on stderr why there is nothing to print; raise what is returned."""
    say(line, err=True)
    return typer.Exit(Exit.FAILED)
