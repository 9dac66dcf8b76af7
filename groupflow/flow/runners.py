"""Finds what runs a task by its type: one of the application's functions, a command, a URL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from groupflow.core.app import SCAN_TYPES, App
from groupflow.core.errors import ConfigError, Problem
from groupflow.flow.exec_handlers import ExecBatchRunner, ExecRunner, what_is_wrong
from groupflow.flow.handling import Runner
from groupflow.flow.python_handlers import PythonRunners
from groupflow.settings.rules import GroupRule, HandlerRule

if TYPE_CHECKING:
    import httpx


def problems_with(
    types: Collection[str], rules: Mapping[str, HandlerRule], *, on_path: bool = False
) -> list[Problem]:
    """Why handlers can't run here.

    Args:
        types: those that the application handles.
        rules: ``[handlers]`` of the configuration.
        on_path: whether a bare name has to be on the path now; each run looks it up again.
    """
    problems = []
    for type_, rule in rules.items():
        setting = f'handlers."{type_}"'
        if type_.startswith(SCAN_TYPES):
            remedy = f"Types that begin with {SCAN_TYPES!r} are those of scans: take another."
            problems.append(Problem(setting, "", remedy))
        if type_ in types:
            remedy = "The application has a handler for this type as well: take one of them out."
            problems.append(Problem(setting, "", remedy))
        if rule.exec is None or ("/" not in rule.exec[0] and not on_path):
            continue
        if wrong := what_is_wrong(rule.exec[0]):
            problems.append(Problem(f"{setting}.exec", rule.exec[0], wrong))
    return problems


def problems_with_batches(
    app: App, rules: Mapping[str, HandlerRule], groups: Sequence[GroupRule]
) -> list[Problem]:
    """Group rules with a batch, where no handler takes batches."""
    if any(handler.size for handler in app.handlers):
        return []
    if any(rule.batch > 1 for rule in rules.values()):
        return []
    remedy = (
        "No handler takes more than one task: register one with @app.batch_handler, or set batch "
        "in its [handlers] table, or leave this out."
    )
    return [
        Problem(f"groups[{number}].batch", str(group.batch), remedy)
        for number, group in enumerate(groups)
        if group.batch > 1
    ]


class AllRunners(PythonRunners):
    """The runners of one daemon. A message can only name a type; handlers come only from here."""

    def __init__(
        self,
        app: App,
        rules: Mapping[str, HandlerRule],
        threads: Executor,
        scans: Callable[[str], Runner | None] = lambda _type: None,
        before: AllRunners | None = None,
    ) -> None:
        """Builds the application's runners, plain functions in threads, and those of `rules`.

        `scans` finds the runner of a scan's shards, by their type. Connections are those of the
        runners `before` a reload.

        Raises:
            ConfigError: a type has two handlers, or a command's program can't be run.
        """
        if problems := problems_with(app.types, rules):
            raise ConfigError(problems)
        super().__init__(app, threads)
        self._scans = scans
        self._http: httpx.AsyncClient | None = before._http if before else None
        for type_, rule in rules.items():
            self._runners[type_] = self._foreign(rule)

    def _foreign(self, rule: HandlerRule) -> Runner:
        if rule.exec is not None:
            return (ExecBatchRunner if rule.batch > 1 else ExecRunner)(rule, rule.exec)
        assert rule.http is not None  # noqa: S101  exactly one of them, as the settings check
        # Imported late: a daemon without such handlers saves the time to load and close the client.
        from groupflow.flow.http_handlers import (  # noqa: PLC0415
            HttpBatchRunner,
            HttpRunner,
            open_client,
        )

        self._http = self._http or open_client()
        kind = HttpBatchRunner if rule.batch > 1 else HttpRunner
        return kind(rule, rule.http.get_secret_value(), self._http)

    def find(self, type: str) -> Runner | None:
        """The runner of a type, or ``None``."""
        found = super().find(type)
        return self._scans(type) if found is None and type.startswith(SCAN_TYPES) else found

    @property
    def types(self) -> list[str]:
        """The types that have a handler, sorted."""
        return sorted(self._runners)

    async def close(self) -> None:
        """Close the HTTP client's connections."""
        if self._http is not None:
            await self._http.aclose()
