"""`groupflow schema`: the message that publishers have to write, for their own tools."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from groupflow.cli.options import ConfigOption, print_json

verbs = typer.Typer()


class Format(StrEnum):
    JSON_SCHEMA = "json-schema"
    ASYNCAPI = "asyncapi"


@verbs.command("schema")
def schema(
    *,
    format_: Annotated[
        Format, typer.Option("--format", help="JSON Schema 2020-12, or AsyncAPI 3.0.")
    ] = Format.JSON_SCHEMA,
    config: ConfigOption = None,
) -> None:
    """Print a schema of the messages that this configuration takes, as JSON.

    For example:

      groupflow schema --config config/groupflow.toml > message.schema.json

      groupflow schema --format asyncapi
    """
    from groupflow.broker.contract import asyncapi, message_schema
    from groupflow.settings.load import load_settings

    settings = load_settings(config)
    print_json(message_schema(settings) if format_ is Format.JSON_SCHEMA else asyncapi(settings))
