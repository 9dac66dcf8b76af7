"""`groupflow check-config`, `route`, `schema`, `doctor`: is all as it is meant to be?

Is the configuration right, and what does it come to; where would a message go, and what may it say;
is what groupflow stands on fit for it?
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
import typer

from groupflow.cli.bodies import STDIN, BodiesArgument, HeaderOption, parse_headers, read_bodies
from groupflow.cli.exits import Exit
from groupflow.cli.options import AppOption, moment, option, print_json, say
from groupflow.cli.verb import Answer, Call, verb
from groupflow.core.checkup import Check
from groupflow.core.errors import ConfigError, Problem
from groupflow.core.masking import mask_all, mask_secrets

if TYPE_CHECKING:
    from groupflow.core.app import App
    from groupflow.settings.changes import SettingChange
    from groupflow.settings.load import Sources
    from groupflow.settings.model import Settings
    from groupflow.settings.planning import Way

verbs = typer.Typer()

_LISTS = ("groups", "handlers", "schedules")
_NEXT_TIMES = 3  # of each schedule


@verb(verbs, "check-config")
def check_config(
    call: Call,
    *,
    app: AppOption = None,
    diff: Annotated[
        str | None,
        option(
            "--diff FILE|DAEMON",
            "Only show what differs from another file, or from what a running daemon of this "
            "name goes by, apart from its passwords.",
        ),
    ] = None,
) -> Answer:
    """Check the configuration and print what it comes to, passwords hidden.

    With --app the handlers too: those of the application can be called, commands can be run here.

    For example:

      groupflow check-config --config config/groupflow.toml

      groupflow check-config --app handlers:app --json

      groupflow check-config --config new.toml --diff worker-1
    """
    from groupflow.cli.app_loading import load_app
    from groupflow.settings.load import find_sources

    try:
        settings = call.settings
        loaded = load_app(app) if app else None
        sources = find_sources(call.config)
        if loaded is not None:
            from groupflow.flow.runners import problems_with, problems_with_batches

            problems = problems_with(loaded.types, settings.handlers, on_path=True)
            problems += problems_with_batches(loaded, settings.handlers, settings.groups)
            if problems:
                raise ConfigError(problems, str(sources.file or ""))
    except ConfigError as error:
        if not call.as_json:
            raise
        problems = mask_all([asdict(each) for each in error.problems])
        told = {"ok": False, "source": error.source, "problems": problems}
        return Answer(told, [], exit=Exit.CONFIG)
    if diff is not None:
        changes = [change.as_json() for change in _changes(call, diff)]
        lines = change_lines(changes) or ["nothing would change"]
        return Answer({"ok": True, "changes": changes}, lines)
    report = _report(settings, loaded, sources)
    return Answer(report, _lines(report))


def _changes(call: Call, target: str) -> list[SettingChange]:
    """What the configuration would change for a file or a daemon."""
    from groupflow.operate.daemons import read_configuration
    from groupflow.settings.changes import compare, compare_reports, report
    from groupflow.settings.load import load_settings, may_be

    if may_be(Path(target)):
        return compare(load_settings(Path(target)), call.settings)
    found = call.ask(lambda namespace: read_configuration(namespace, target))
    if found is None:
        raise typer.BadParameter(
            f"{target!r} is no file, and no daemon of that name is running.", param_hint="--diff"
        )
    return compare_reports(found, report(call.settings))


def change_lines(changes: Sequence[dict[str, Any]]) -> list[str]:
    """Changes for people, one a line."""
    return [
        f"{each['setting']}: {_literal(each['old'])} → {_literal(each['new'])}"
        + (", needs a restart" if each["needs_restart"] else "")
        for each in changes
    ]


def _report(settings: Settings, app: App | None, sources: Sources) -> dict[str, Any]:
    from groupflow.settings.changes import public_values

    return {
        "ok": True,
        "file": str(sources.file) if sources.file else None,
        "secrets": str(sources.secrets) if sources.secrets else None,
        "secret_files": sources.secret_files,
        "variables": sources.variables,
        "settings": public_values(settings),
        "handlers": app.types if app else None,
        "schedules": _next_times(settings),
        "notes": _notes(settings, sources),
    }


def _next_times(settings: Settings) -> dict[str, list[str]]:
    """When each schedule is due next, in its own time zone, by this machine's clock."""
    from itertools import islice
    from time import time
    from zoneinfo import ZoneInfo

    found: dict[str, list[str]] = {}
    for rule in settings.schedules:
        ticks = islice(rule.timing().ticks(round(time() * 1_000_000)), _NEXT_TIMES)
        zone = ZoneInfo(rule.timezone)
        times = [datetime.fromtimestamp(tick / 1_000_000, zone) for tick in ticks]
        found[rule.name] = [each.isoformat(sep=" ") for each in times]
    return found


def _notes(settings: Settings, sources: Sources) -> list[str]:
    """What is allowed but may surprise."""
    from groupflow.core.template import FieldPath, Template

    notes = []
    tenant = settings.fields.tenant
    for index, rule in enumerate(settings.groups):
        if rule.app == "*" and rule.tenants != ("*",):
            notes.append(
                f"groups[{index}] lists tenants for any application: a message that no earlier "
                "rule takes is a dead letter if it names no tenant."
            )
        fields = {field.text for field in Template.parse(rule.key).fields}
        if tenant and rule.tenants != ("*",) and len(rule.tenants) == 1:
            continue
        if tenant and FieldPath.parse(tenant).text not in fields:
            notes.append(
                f"groups[{index}].key doesn't name {{{tenant}}}: tenants share its groups, and "
                "one tenant's failures can hold another's tasks."
            )
    notes += _notes_of_here(settings, sources)
    if settings.workers.plain + settings.workers.grouped == 0:
        notes.append("workers.plain and workers.grouped are both 0: nothing will run here.")
    return notes


def _notes_of_here(settings: Settings, sources: Sources) -> list[str]:
    """What is to be said of this machine, which need not be the one where it will run."""
    from groupflow.doctor.local import examine_files, examine_http
    from groupflow.flow.runners import problems_with

    files, http, problems = examine_files(settings, sources), list[Check](), list[Problem]()
    ways_there = settings.rabbitmq_url, settings.redis_url
    for look in (lambda: http.extend(examine_http(settings.http)), *ways_there):
        try:
            look()
        except ConfigError as error:
            problems += error.problems
    problems += problems_with((), settings.handlers, on_path=True)
    notes = [f"{each.found}. {each.remedy}" for each in files if each.verdict != "ok"]
    notes += [f"{c.name} = {c.found}. {c.remedy}" for c in http if c.verdict != "ok"]
    return notes + [f"it can't run here: {problem}" for problem in problems]


def _lines(report: dict[str, Any]) -> Iterator[str]:
    """What it comes to, as TOML."""
    yield f"# file: {report['file'] or 'none, defaults are used'}"
    if report["secrets"]:
        yield f"# secrets: {report['secrets']}: {', '.join(report['secret_files']) or 'none'}"
    if report["variables"]:
        yield f"# environment: {', '.join(report['variables'])}"
    if report["handlers"] is not None:
        yield f"# handlers: {', '.join(report['handlers']) or 'none'}"
    yield ""
    settings = dict(report["settings"])
    tenants = dict(settings["tenants"])  # a named one is a table of this table
    named = tenants.pop("named")
    settings["tenants"] = tenants | named
    tables = [(f"[{name}]", settings[name]) for name in settings if name not in _LISTS]
    tables += [("[[groups]]", rule) for rule in settings["groups"]]
    tables += [
        (f"[handlers.{_key(name)}]", handler) for name, handler in settings["handlers"].items()
    ]
    tables += [("[[schedules]]", schedule) for schedule in settings["schedules"]]
    for header, values in tables:
        yield header
        for name, value in values.items():
            if value is not None:
                yield f"{_key(name)} = {_literal(value)}"
        yield ""
    for name, times in report["schedules"].items():
        due = [str(moment(datetime.fromisoformat(each).timestamp())) for each in times]
        yield f"# schedule {name}: next {', '.join(due) or 'never'}"
    yield from (f"# note: {note}" for note in report["notes"])
    yield "# ok"


def _literal(value: Any) -> str:
    """A value as TOML writes it, where JSON's texts and numbers are the same."""
    if isinstance(value, dict):
        pairs = [f"{_key(k)} = {_literal(v)}" for k, v in value.items() if v is not None]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return orjson.dumps(value).decode()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _literal(name)


NO_HANDLER = "none in this configuration"


@verb(verbs, "route")
def route(
    call: Call,
    file: BodiesArgument = STDIN,
    *,
    task_type: Annotated[str | None, option("--type T", "The AMQP type property.")] = None,
    header: HeaderOption = None,
    app: AppOption = None,
) -> Answer:
    """Say where messages would go, without sending them anywhere. Exit 1: one is a dead letter.

    For example:

      echo '{"type": "import.contacts", "tenant_id": 42}' | groupflow route

      groupflow route jobs.jsonl --app handlers:app --header x-entity=contact
    """
    from groupflow.cli.app_loading import load_app
    from groupflow.settings.planning import DryRun

    headers = parse_headers(header)
    dry_run = DryRun(call.settings, load_app(app).names if app else {})
    ways = [dry_run.find(body.raw, headers, task_type) for body in read_bodies(file)]
    ways = [way if way.handler or way.reason else replace(way, handler=NO_HANDLER) for way in ways]
    lines = [f"{number}: {_way_line(way)}" for number, way in enumerate(ways, start=1)]
    is_dead = any(way.reason for way in ways)
    return Answer(ways, lines, exit=Exit.FAILED if is_dead else Exit.FINE)


def _way_line(way: Way) -> str:
    if way.reason:
        return f"dead letter: {way.reason}"
    facts: list[str] = [way.queue]
    if way.group is not None:
        facts.append(f"group {way.group} by {way.rule}")
    facts += [f"type {way.type}", f"handler {way.handler}"]
    seconds = {"priority": way.priority, "delay": way.delay, "expires within": way.expires}
    facts += [f"{name} {value:g} s" for name, value in seconds.items() if value]
    facts += [f"at most {way.max_queued} wait in its group"] if way.max_queued else []
    return ", ".join(facts)


@verb(verbs, "schema", has_json=False)
def schema(
    call: Call,
    *,
    format_: Annotated[
        Literal["json-schema", "asyncapi"],
        option("--format", "JSON Schema 2020-12, or AsyncAPI 3.0."),
    ] = "json-schema",
) -> None:
    """Print a schema of the messages that this configuration takes, as JSON.

    For example:

      groupflow schema --config config/groupflow.toml > message.schema.json

      groupflow schema --format asyncapi
    """
    from groupflow.broker.contract import asyncapi, message_schema

    make = message_schema if format_ == "json-schema" else asyncapi
    print_json(make(call.settings))


_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


@verb(verbs, "doctor")
def doctor(call: Call) -> Answer:
    """Examine Redis and RabbitMQ: versions, durability, memory, clocks, rights, the queue.

    And whether daemons run, how many messages wait for them, and whether others may write the
    configuration, or read its secrets.

    Nothing is changed. Exit 0: all is well, or there are warnings; 1: something fails; 69: a server
    can't be reached; 78: the configuration can't be used.

    For example:

      groupflow doctor --config groupflow.toml

      groupflow doctor --json | jq '.checks[] | select(.verdict != "ok")'
    """
    from groupflow.doctor.examination import examine
    from groupflow.settings.load import find_sources

    found = asyncio.run(examine(call.settings, find_sources(call.config)))
    checks = [
        {name: mask_secrets(text) for name, text in check.as_json().items()} for check in found
    ]
    failed = [check.name for check in found if check.verdict == "fail"]
    end = Exit.FAILED if failed else Exit.FINE
    # A server gave no answer, or refused the credentials.
    is_away = any(name.endswith(".reachable") for name in failed)
    verdicts = {check.verdict for check in found}
    worst = next(each for each in ("fail", "warn", "ok") if each in verdicts)
    shown = {"verdict": worst, "checks": checks}
    return Answer(shown, lambda: _print_checks(checks), exit=Exit.UNAVAILABLE if is_away else end)


def _print_checks(checks: Sequence[dict[str, str]]) -> None:
    for check in checks:
        verdict = typer.style(f"{check['verdict']:4}", fg=_STYLES[check["verdict"]])
        say(f"  {check['name']:25} {check['found']}", lead=verdict)
        if check["remedy"]:
            say(f"{'':32}→ {check['remedy']}")
