"""What the API shows: all that an operator asks, each by bounded looks at the store.

A body, its headers, a result and a handler's words about them belong to a tenant. Where there is a
token, they are withheld from callers without it: looking at the queue, which may be open to all of
a machine, doesn't show them. A reason repeats such words (a command's stderr, an answer that echoes
the body, a value that could not be routed): its kind is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from groupflow.core.errors import ArchiveRefused, BodyMissing, ServerUnreachable
from groupflow.operate.actions import Action, latest
from groupflow.operate.bulk import Reasons, read_causes
from groupflow.operate.busy import Tops, read_tops
from groupflow.operate.corrections import Correction
from groupflow.operate.daemons import DaemonStory, find_daemon
from groupflow.operate.dead import DeadLetters, DeadPage, DeadStory, beginning_of
from groupflow.operate.ended import drained_lately, lately_of, list_ended
from groupflow.operate.groups import Groups
from groupflow.operate.limits import ByHand, LimitsByHand
from groupflow.operate.listing import (
    GroupPage,
    TaskFilter,
    TaskList,
    list_groups,
    list_tasks,
    search_tasks,
)
from groupflow.operate.redrive import whole_letter
from groupflow.operate.scans import ScanPage, Scans, ScanStory, ShardRow, explain
from groupflow.operate.schedules import read_schedules
from groupflow.operate.statistics import Sample, read_samples
from groupflow.operate.tasks import OVER, Found, Tasks
from groupflow.operate.tenants import TenantCounts, TenantPage, Tenants
from groupflow.operate.totals import PartitionRow, Totals, read_partitions, read_totals
from groupflow.operate.types import RINGS, TypeFigures, read_types
from groupflow.ops.page import shapes
from groupflow.ops.page.endpoints import Caller, Endpoint
from groupflow.ops.page.facts import PageContext
from groupflow.ops.page.problems import InputRefused, known_only, there
from groupflow.ops.snapshots import Snapshot
from groupflow.settings.changes import public_values
from groupflow.settings.planning import DryRun, Way

_Told = TypeVar("_Told", Found, DeadStory)
_Scanned = TypeVar("_Scanned", ScanStory, ShardRow)
_look = partial(Endpoint, "GET", reads=True)
_REDACTED = "(shown with the token)"
_TOLD = (
    *("id", "type", "group", "tenant", "reason", "kind", "attempts", "died_at"),
    *("errors", "corrections"),
)  # of a dead letter
_SHOWN_BODY = 256 * 1024  # bytes of a dead letter's body
_COUNTS_AGE = 5.0  # seconds; to count tenants takes more of Redis's time than other looks
_TOTALS_AGE = 0.8  # seconds; under the second between two events, or one would repeat the other


def _content(body: bytes, headers: Mapping[str, Any]) -> shapes.Content:
    size = len(body)
    shown: Any = beginning_of(body, _SHOWN_BODY)
    return shapes.Content(
        dict(headers),
        **shown,
        body_bytes=size,
        is_cut=size > _SHOWN_BODY,
        is_withheld=False,
    )


def _withheld(size: int) -> shapes.Content:
    return shapes.Content({}, None, None, size, is_cut=False, is_withheld=True)


class Reading:
    """The endpoints that change nothing."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._namespace = namespace = context.namespace
        self.overview = Snapshot[Totals](lambda: read_totals(namespace), _TOTALS_AGE)
        self._tops = Snapshot[Tops](lambda: read_tops(namespace), 2.0)
        self._samples = {
            "1": Snapshot[list[Sample]](lambda: read_samples(namespace), 2.0),
            "24": Snapshot[list[Sample]](lambda: read_samples(namespace, of_day=True), 10.0),
        }
        self._figures = {
            hours: Snapshot[TypeFigures](partial(read_types, namespace, hours), 2.0)
            for hours in RINGS
        }
        self._all_schedules = Snapshot(lambda: read_schedules(namespace), _TOTALS_AGE)
        self._tenants_of = Tenants(namespace)
        self._counts = Snapshot[TenantCounts](self._tenants_of.count, _COUNTS_AGE)
        self._letters = DeadLetters(namespace)
        self._groups = Groups(namespace)

    @Endpoint("GET", "/overview", "Totals and daemons now")
    async def _overview(self) -> Totals:
        return await self.overview.get()

    @Endpoint("GET", "/samples", "The last hour or day, oldest first; of a day fewer")
    async def _sampled(self, query: shapes.SamplesQuery) -> list[Sample]:
        return await self._samples[query.hours].get()

    @Endpoint("GET", "/tops", "The groups that stand out")
    async def _stand_out(self) -> Tops:
        return await self._tops.get()

    @_look("/groups", "Groups of a state")
    async def _list(self, query: shapes.GroupsQuery) -> GroupPage:
        if query.state != "drained":
            return await list_groups(self._namespace, **dict(query))
        if query.tenant:
            raise InputRefused("Drained groups are not known by tenant: leave it out.")
        return await drained_lately(self._namespace, text=query.text, limit=query.limit)

    @_look("/group", "One group's story")
    async def _group(self, query: shapes.GroupQuery, caller: Caller) -> shapes.GroupStory:
        lane = await self._groups.lane(query.key, passed=query.passed, limit=query.limit)
        if not caller.sees_contents:
            shown = [replace(each, errors=_without_words(each.errors)) for each in lane.tasks]
            lane = replace(lane, tasks=shown)
        namespace = self._namespace
        bounds, shows = self._context.facts.settings.max_queued(), caller.sees_contents
        why = await explain(namespace, query.key, max_queued=bounds, with_words=shows)
        if not query.lately:
            return shapes.GroupStory(why, lane, [], [], None)
        lately = await lately_of(namespace, query.key, query.lately)
        return shapes.GroupStory(why, lane, lately.tasks, lately.minutes, lately.since)

    @_look("/tasks", "Tasks of a state that match")
    async def _tasks(self, query: shapes.TasksQuery) -> TaskList:
        namespace = self._namespace
        wanted = TaskFilter(query.id, query.type, query.tenant, query.group, query.older)
        if query.state in OVER:
            return await list_ended(
                namespace, query.state, wanted, cursor=query.cursor, limit=query.limit
            )
        if not wanted.is_set and query.cursor == "0":
            return await list_tasks(namespace, query.state, query.limit)
        return await search_tasks(
            namespace, query.state, wanted, cursor=query.cursor, limit=query.limit
        )

    @_look("/body", "Headers and body of a task that waits or runs", may_miss=True)
    async def _body(self, query: shapes.TaskQuery, caller: Caller) -> shapes.Content:
        if not caller.sees_contents:
            return _withheld(0)
        envelope = there(await Tasks(self._namespace).envelope(query.id, query.choice))
        return _content(envelope.body, envelope.headers)

    @_look("/result", "The result of a task that is done, as a body", may_miss=True)
    async def _result(self, query: shapes.TaskQuery, caller: Caller) -> shapes.Content:
        if not caller.sees_contents:
            return _withheld(0)
        found = there(await Tasks(self._namespace).find(query.id, query.choice))
        return _content(orjson.dumps(there(found.result)), {})

    @_look("/dead/reasons", "What they died of")
    async def _reasons(self, query: shapes.ReasonsQuery, caller: Caller) -> Reasons:
        wanted = query.filter(query.tenant or None, sees_contents=caller.sees_contents)
        found = await read_causes(self._namespace, wanted)
        if caller.sees_contents:
            return found
        causes = [replace(each, reason=each.kind or _REDACTED) for each in found.reasons]
        return replace(found, reasons=causes)

    @_look("/task", "One task, by id", may_miss=True)
    async def _task(self, query: shapes.TaskQuery, caller: Caller) -> Found:
        shows = caller.sees_contents
        found = there(await Tasks(self._namespace).find(query.id, query.choice, with_words=shows))
        if shows:
            return found
        shown = replace(found, progress=found.progress and found.progress.without_words())
        if found.result is not None or found.result_error:
            shown = replace(shown, result=None, result_error=_REDACTED)
        shown = _redacted(shown, found.errors[-1]["error"] if found.errors else "")
        waits = found.state in {"queued", "delayed"}
        return replace(shown, reason=found.reason) if waits else shown

    @_look("/limits", "Limits by hand")
    async def _limits(self) -> ByHand:
        return await LimitsByHand(self._namespace).every()

    @_look("/actions", "What operators did, the latest first")
    async def _actions(self, query: shapes.ActionsQuery, caller: Caller) -> list[Action]:
        found = await latest(self._namespace, query.limit)
        if caller.sees_contents:
            return found
        return [
            replace(e, facts={n: f for n, f in e.facts.items() if n != "reason"}) for e in found
        ]

    @_look("/tenants", "Tenants with a limit, or something that waits or runs")
    async def _tenants(self, query: shapes.TenantsQuery) -> TenantPage:
        return await self._tenants_of.page(await self._counts.get(), **dict(query))

    @Endpoint("GET", "/schedules", "All schedules")
    async def _schedules(self) -> shapes.ScheduleList:
        return shapes.ScheduleList(await self._all_schedules.get())

    @_look("/scans", "All scans of tables")
    async def _scans(self, caller: Caller) -> list[ScanStory]:
        found = await Scans(self._namespace).every()
        return found if caller.sees_contents else [_without_trouble(scan) for scan in found]

    @_look("/scan", "One scan and its shards", may_miss=True)
    async def _scan(self, query: shapes.NameQuery, caller: Caller) -> ScanPage:
        with known_only():
            scan, shards = await Scans(self._namespace).look(query.name)
        rows = [each.row for each in shards]
        if caller.sees_contents:
            return ScanPage(scan, rows)
        return ScanPage(_without_trouble(scan), [_without_trouble(row) for row in rows])

    @_look("/daemon", "One daemon: what it is, does and runs", may_miss=True)
    async def _daemon(self, query: shapes.NameQuery, caller: Caller) -> DaemonStory:
        found = there(await find_daemon(self._namespace, query.name))
        if caller.sees_contents:
            return found
        return replace(found, tasks=[task.without_words() for task in found.tasks])

    @_look("/partitions", "What lies where")
    async def _partitions(self) -> list[PartitionRow]:
        return await read_partitions(self._namespace)

    @_look("/types", "What handlers did, by type")
    async def _types(self, query: shapes.TypesQuery) -> TypeFigures:
        found = await self._figures[int(query.hours)].get()
        rows = [row for row in found.types if query.type in ("", row.type)]
        return replace(found, types=rows)

    @_look("/dead", "Dead letters, latest first")
    async def _dead(self, query: shapes.DeadQuery, caller: Caller) -> DeadPage:
        wanted = query.filter(query.tenant or None, sees_contents=caller.sees_contents)
        page = await self._letters.page(wanted, passed=query.passed, limit=query.limit)
        if caller.sees_contents:
            return page
        letters = [replace(letter, reason=letter.kind or _REDACTED) for letter in page.letters]
        return replace(page, letters=letters)

    @_look("/letter", "One dead letter with its body", may_miss=True)
    async def _letter(self, query: shapes.TaskQuery, caller: Caller) -> shapes.Letter:
        letter = there(await self._letters.find(query.id, query.choice))
        if not caller.sees_contents:
            return _letter_of(_redacted(letter, letter.kind), _withheld(letter.bytes))
        try:
            with known_only():  # it may have been redriven or dropped a moment ago
                whole = await whole_letter(self._context.facts.settings, self._namespace, letter)
        except (ArchiveRefused, BodyMissing, ServerUnreachable) as error:
            nothing = replace(_withheld(letter.bytes), is_withheld=False)
            return _letter_of(letter, nothing, str(error))
        content = _content(whole.envelope.body, whole.envelope.headers)
        return _letter_of(letter.with_beside(whole.beside), content)

    @Endpoint("GET", "/configuration", "What the daemon runs by, secrets masked")
    async def _configuration(self) -> shapes.Configuration:
        facts = self._context.facts
        return shapes.Configuration(public_values(facts.settings), [*facts.functions])

    @Endpoint("POST", "/route", "Where a message would go; nothing is sent", reads=True)
    async def _route(self, query: shapes.RouteQuery) -> Way:
        facts = self._context.facts
        found = DryRun(facts.settings, facts.functions)
        return found.find(query.body.encode(), query.headers, query.type or None)


def _letter_of(letter: DeadStory, content: shapes.Content, body_error: str = "") -> shapes.Letter:
    told = {name: getattr(letter, name) for name in _TOLD}
    whole = {**asdict(content), **told, "body_error": body_error}
    return shapes.Letter(**whole, routed_first=letter.died_at_the_door)


def _without_words(errors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Failed attempts by their number, kind, time and daemon, without their words."""
    shown = ({name: fact for name, fact in e.items() if name != "traceback"} for e in errors)
    return [{**error, "message": _REDACTED} for error in shown]


def _without_trouble(found: _Scanned) -> _Scanned:
    return replace(found, trouble=_REDACTED if found.trouble else "")


def _without_bodies(corrections: Sequence[Correction]) -> list[Correction]:
    return [replace(each, body=None, body_base64=None) for each in corrections]


def _redacted(found: _Told, kind: str) -> _Told:
    """A task or a letter without those words, and with the kind in place of its reason."""
    reason = None if found.reason is None else kind or _REDACTED
    errors, corrections = _without_words(found.errors), _without_bodies(found.corrections)
    return replace(found, reason=reason, errors=errors, corrections=corrections)
