"""`groupflow route`: a dry run of routing, queue, group, rule and handler, without a server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupflow.cli.bodies import STDIN, BodiesArgument, read_bodies
from groupflow.cli.options import AppOption, ConfigOption, JsonOption, print_json
from groupflow.cli.safe import say
from groupflow.core.errors import Unroutable
from groupflow.core.masking import mask_command

if TYPE_CHECKING:
    from groupflow.core.app import App
    from groupflow.core.routing import Route
    from groupflow.settings.model import Settings

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
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="An AMQP header; may be repeated."),
    ] = None,
    app: AppOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where messages would go, without sending them anywhere.

    For example:

      echo '{"type": "import.contacts", "tenant_id": 42}' | groupflow route

      groupflow route jobs.jsonl --app handlers:app --header x-entity=contact
    """
    from groupflow.cli.app_loading import load_app  # noqa: PLC0415  start-up stays fast
    from groupflow.settings.load import load_settings  # noqa: PLC0415

    headers = _parse_headers(header or [])
    settings = load_settings(config)
    loaded = load_app(app) if app else None
    router = settings.router()
    answers = [
        _answer(partial(router.route, body, headers, type=task_type), settings, loaded)
        for body in read_bodies(file)
    ]
    if as_json:
        print_json(answers)
        return
    for number, answer in enumerate(answers, start=1):
        _print(number, answer)


def _parse_headers(pairs: list[str]) -> dict[str, str]:
    headers = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE.", param_hint="--header")
        headers[name] = value
    return headers


def _answer(route: Callable[[], Route], settings: Settings, app: App | None) -> dict[str, Any]:
    """One message's way, with the same names whatever came of it."""
    answer: dict[str, Any] = dict.fromkeys(
        ("queue", "type", "app", "tenant", "group", "rule", "handler", "priority", "delay"), None
    )
    answer["reason"] = None
    try:
        found = route()
    except Unroutable as error:
        return answer | {"queue": "dead letter", "reason": error.reason}
    return answer | {
        "queue": "plain" if found.group is None else "grouped",
        "type": found.type,
        "app": found.app,
        "tenant": found.tenant,
        "group": found.group,
        "rule": found.rule,
        "handler": _describe_handler(settings, app, found.type),
        "priority": found.priority,
        "delay": found.delay,
    }


def _describe_handler(settings: Settings, app: App | None, task_type: str) -> str:
    handler = app.find(task_type) if app else None
    if handler:
        function = handler.function
        module = getattr(function, "__module__", "?")
        return f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"
    outside = settings.handlers.get(task_type)
    if outside is None:
        return NO_HANDLER
    return f"exec {mask_command(outside.exec)}" if outside.exec else f"http {outside.http}"


def _print(number: int, answer: dict[str, Any]) -> None:
    if answer["reason"]:
        say(f"{number}: dead letter: {answer['reason']}")
        return
    facts = [answer["queue"]]
    if answer["group"] is not None:
        facts.append(f"group {answer['group']} by {answer['rule']}")
    facts += [f"type {answer['type']}", f"handler {answer['handler']}"]
    facts += [f"{name} {answer[name]:g} s" for name in ("priority", "delay") if answer[name]]
    say(f"{number}: {', '.join(facts)}")
