"""`groupflow route`: a dry run of routing, queue, group, rule and handler, without a server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from groupflow.cli.bodies import STDIN, BodiesArgument, HeaderOption, parse_headers, read_bodies
from groupflow.cli.exits import Exit
from groupflow.cli.options import AppOption, ConfigOption, JsonOption, print_json
from groupflow.cli.safe import say

if TYPE_CHECKING:
    from groupflow.settings.dry_run import Way

verbs = typer.Typer()

NO_HANDLER = "none in this configuration"


@verbs.command("route")
def route(
    file: BodiesArgument = STDIN,
    *,
    config: ConfigOption = None,
    task_type: Annotated[
        str | None, typer.Option("--type", metavar="T", help="The AMQP type property.")
    ] = None,
    header: HeaderOption = None,
    app: AppOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where messages would go, without sending them anywhere. Exit 1: one is a dead letter.

    For example:

      echo '{"type": "import.contacts", "tenant_id": 42}' | groupflow route

      groupflow route jobs.jsonl --app handlers:app --header x-entity=contact
    """
    from groupflow.cli.app_loading import load_app
    from groupflow.settings.dry_run import DryRun
    from groupflow.settings.load import load_settings

    headers = parse_headers(header)
    settings = load_settings(config)
    loaded = load_app(app) if app else None
    dry_run = DryRun(settings, loaded.names if loaded else {})
    ways = [dry_run.find(body.raw, headers, task_type) for body in read_bodies(file)]
    ways = [way if way.handler or way.reason else replace(way, handler=NO_HANDLER) for way in ways]
    if as_json:
        print_json(ways)
    else:
        for number, way in enumerate(ways, start=1):
            _print(number, way)
    if any(way.reason for way in ways):
        raise typer.Exit(Exit.FAILED)


def _print(number: int, way: Way) -> None:
    if way.reason:
        say(f"{number}: dead letter: {way.reason}")
        return
    facts: list[str] = [way.queue]
    if way.group is not None:
        facts.append(f"group {way.group} by {way.rule}")
    facts += [f"type {way.type}", f"handler {way.handler}"]
    seconds = {"priority": way.priority, "delay": way.delay}
    facts += [f"{name} {value:g} s" for name, value in seconds.items() if value]
    say(f"{number}: {', '.join(facts)}")
