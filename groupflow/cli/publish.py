"""`groupflow publish`: messages from a file or stdin, in order, confirmed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupflow.cli.bodies import STDIN, BodiesArgument, read_bodies
from groupflow.cli.options import ConfigOption, JsonOption, print_json
from groupflow.cli.safe import say
from groupflow.core.errors import reaching

if TYPE_CHECKING:
    from groupflow.settings.model import Settings

verbs = typer.Typer()


@verbs.command("publish")
def publish(
    file: BodiesArgument = STDIN,
    *,
    config: ConfigOption = None,
    task_type: Annotated[
        str | None,
        typer.Option("--type", metavar="T", help="The task type; else the body has to name it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Publish messages in order and wait until RabbitMQ has confirmed each.

    For example:

      groupflow publish --type import.contacts contacts.jsonl

      echo '{"app_name": "crm", "tenant_id": 42}' | groupflow publish --type import.contacts
    """
    from groupflow.broker.connection import address_of
    from groupflow.settings.load import load_settings

    settings = load_settings(config)
    bodies = read_bodies(file)
    with reaching("RabbitMQ", address_of(settings.rabbitmq.url.get_secret_value())):
        confirmed = asyncio.run(_publish(settings, bodies, task_type))
    if as_json:
        print_json({"published": confirmed, "queue": settings.rabbitmq.queue})
    else:
        say(f"published {confirmed} to {settings.rabbitmq.queue}, all confirmed")


async def _publish(settings: Settings, bodies: list[bytes], task_type: str | None) -> int:
    from groupflow.broker.publisher import Outgoing, publishing
    from groupflow.ops.tracing import open_tracing

    tracing = open_tracing(settings)
    rabbitmq = settings.rabbitmq
    with _progress(len(bodies)) as on_confirm:
        async with publishing(
            settings.rabbitmq_url(),
            rabbitmq.queue,
            partitions=rabbitmq.partitions,
            router=settings.router(),
            tracing=tracing,
        ) as publisher:
            messages = (Outgoing(body, task_type) for body in bodies)
            return await publisher.publish_all(messages, on_confirm)


def _progress(total: int) -> Any:
    """A context that gives what to call after each confirm; a bar where somebody watches."""
    if not sys.stderr.isatty():
        return nullcontext(lambda: None)
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def bar() -> Any:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("publishing", total=total)
            on_confirm: Callable[[], None] = lambda: progress.advance(task)  # noqa: E731
            yield on_confirm

    return bar()
