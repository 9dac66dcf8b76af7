"""The message as publishers have to write it, as a JSON Schema and as an AsyncAPI description.

Both are made here from the names and limits that routing and admission use, so that they can't
differ. ``groupflow schema`` prints them for a configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupflow.core.routing import CANCEL, MAX_SECONDS, MAX_TEXT_BYTES, SOONEST
from groupflow.core.template import FieldPath
from groupflow.settings.model import Settings

_NO_CONTROLS = {"not": {"type": "string", "pattern": r"[\u0000-\u001f\u007f-\u009f]"}}
_NAME = ("string", "integer", "null")
_WHOLE = {"minimum": -(2**63), "maximum": 2**64 - 1}
_NUMBER_TEXT = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


def message_schema(settings: Settings) -> dict[str, Any]:
    """The JSON Schema of a message: its properties, its headers and its body.

    A message that it refuses becomes a dead letter. What a rule's key needs beyond it (``key`` in
    ``[[groups]]``) and limits in bytes, which JSON Schema can't count, are said in words.
    """
    typed = [_demand(["properties", "type"]), _demand(["headers", CANCEL])]
    if settings.fields.type:
        path = FieldPath.parse(settings.fields.type)
        typed.append(_demand(["headers" if path.in_headers else "body", *path.steps]))
    parts = {"properties": _properties(), "headers": _headers(settings), "body": _body(settings)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A message for groupflow",
        "required": ["body"],
        "anyOf": typed,
        **_object(parts),
    }


def asyncapi(settings: Settings) -> dict[str, Any]:
    """The AsyncAPI 3.0 description of the queue, or the exchange, that publishers write to."""
    queue, partitions = settings.rabbitmq.queue, settings.rabbitmq.partitions
    schema = message_schema(settings)["properties"]
    # AMQP has properties and headers, AsyncAPI headers only.
    headers = {**schema["properties"]["properties"], **schema["headers"]["properties"]}
    message = {
        "name": "task",
        "title": "A task",
        "contentType": "application/json",
        "correlationId": {"location": "$message.header#/message_id"},
        "headers": _object(headers),
        "payload": schema["body"],
        "bindings": _amqp({"contentEncoding": "utf-8"}),
    }
    operation = {
        "action": "receive",
        "channel": {"$ref": "#/channels/tasks"},
        "summary": "groupflow takes the message in and runs it as a task.",
        "bindings": _amqp({"deliveryMode": 2, "mandatory": True}),
    }
    channel = {
        **_channel(queue, partitions),
        "messages": {"task": {"$ref": "#/components/messages/task"}},
    }
    where = "default exchange" if partitions == 1 else "exchange"
    about = (
        f"Tasks for groupflow's daemons: persistent messages to the {where}, mandatory, with "
        "publisher confirms."
    )
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "groupflow", "version": "1.0.0", "description": about},
        "defaultContentType": "application/json",
        "channels": {"tasks": channel},
        "operations": {"runTask": operation},
        "components": {"messages": {"task": message}},
    }


def _channel(queue: str, partitions: int) -> dict[str, Any]:
    """Where messages go: to the queue; or to the exchange, by their group."""
    lasting = {"durable": True, "autoDelete": False}
    if partitions == 1:
        found = {"name": queue, "exclusive": False, **lasting}
        return {"address": queue, "bindings": _amqp({"is": "queue", "queue": found})}
    group = "The routing key: the group, or another text that all messages of a group share."
    found = {"name": queue, **lasting}
    return {
        "address": "{group}",
        "parameters": {"group": {"description": group}},
        "bindings": _amqp({"is": "routingKey", "exchange": found}),
    }


def _amqp(binding: dict[str, Any]) -> dict[str, Any]:
    return {"amqp": {**binding, "bindingVersion": "0.3.0"}}


def _object(properties: dict[str, Any], description: str = "") -> dict[str, Any]:
    said = {"description": description} if description else {}
    return {"type": "object", **said, "properties": properties}


def _properties() -> dict[str, Any]:
    id_ = _text(
        "The task's id: a message with a known one is dropped. At most 255 bytes; without one, the "
        "same message published again is a second task."
    )
    priority = (
        "Seconds by which the task counts as older, where the header x-priority isn't set. On "
        "RabbitMQ 4, 5 and more break the order within groups."
    )
    within = (
        "Milliseconds since intake within which the task has to start. RabbitMQ drops a message "
        "that lies in its queue for as long."
    )
    properties = {
        "message_id": id_,
        "type": _text("The task type, which names the handler. At most 255 bytes."),
        "priority": {"type": "integer", "minimum": 0, "maximum": 255, "description": priority},
        "expiration": {"type": ["string", "null"], "pattern": "^[0-9]+$", "description": within},
        "delivery_mode": {"const": 2, "description": "Persistent, or RabbitMQ may lose it."},
    }
    return _object(properties, "AMQP properties. Others are not read.")


def _headers(settings: Settings) -> dict[str, Any]:
    routed = {path.steps[0]: schema for path, schema in _routed(settings) if path.in_headers}
    older = "Seconds by which the task counts as older than it is."
    later = "Milliseconds before which the task may not run."
    cancelled = "The message is no task, and cancels the task of this id, application and tenant."
    within = "Seconds since intake within which the task has to start; over 0."
    properties = {
        **routed,
        CANCEL: {**_text(cancelled), "minLength": 1},
        "x-priority": {**_numeric(-MAX_SECONDS, MAX_SECONDS, in_header=True), "description": older},
        # Below 0: RabbitMQ's delayed exchange has waited already.
        "x-expires": {
            **_numeric(SOONEST, MAX_SECONDS, in_header=True),
            "description": within,
        },
        "x-delay": {**_numeric(None, MAX_SECONDS * 1000, in_header=True), "description": later},
    }
    most = settings.rabbitmq.max_headers
    about = f"AMQP headers, at most {most} bytes. Others are handed to the handler."
    return _object(properties, about)


def _body(settings: Settings) -> dict[str, Any]:
    rabbitmq = settings.rabbitmq
    schema = _object(
        {},
        f"A JSON object in UTF-8, at most {rabbitmq.max_body} bytes and {rabbitmq.max_values} "
        "values. What isn't described here is the handler's.",
    )
    for path, leaf in _routed(settings):
        if not path.in_headers:
            _put(schema, path.steps, leaf)
    return schema


def _routed(settings: Settings) -> list[tuple[FieldPath, dict[str, Any]]]:
    """The fields that routing reads, each with its schema."""
    fields = settings.fields
    named = [
        (fields.app, {**_text("The application, by which rules are chosen.", *_NAME), **_WHOLE}),
        (fields.tenant, {**_text("The tenant.", *_NAME), **_WHOLE}),
        (fields.type, _text("The task type, where the AMQP type isn't set.", "string", "null")),
    ]
    found = [(FieldPath.parse(text), schema) for text, schema in named if text]
    for text, least, what in (
        (fields.priority, -MAX_SECONDS, "Seconds by which the task counts as older than it is."),
        (fields.delay, 0.0, "Seconds before which the task may not run."),
    ):
        if text:
            path = FieldPath.parse(text)
            number = _numeric(least, MAX_SECONDS, in_header=path.in_headers)
            absent = {"enum": ["", None]}  # empty is the same as missing
            found.append((path, {"anyOf": [number, absent], "description": what}))
    return found


def _put(schema: dict[str, Any], steps: Sequence[str], leaf: dict[str, Any]) -> None:
    """Set the schema at the end of a path; places in lists aren't described."""
    if any(step.isdecimal() for step in steps):
        return
    for step in steps[:-1]:
        schema = schema.setdefault("properties", {}).setdefault(step, {})
    schema.setdefault("properties", {})[steps[-1]] = leaf


def _demand(steps: Sequence[str]) -> dict[str, Any]:
    """That there is a text at the end of a path, and not an empty one."""
    if any(step.isdecimal() for step in steps):
        return {}
    demand: dict[str, Any] = {"type": "string", "minLength": 1}
    for step in reversed(steps):
        demand = {"type": "object", "required": [step], "properties": {step: demand}}
    return demand


def _text(description: str, *kinds: str) -> dict[str, Any]:
    """A short text, or a value of one of these kinds."""
    limits = {"maxLength": MAX_TEXT_BYTES, **_NO_CONTROLS}
    return {"type": list(kinds) or "string", **limits, "description": description}


def _numeric(least: float | None, most: float, *, in_header: bool) -> dict[str, Any]:
    number: dict[str, Any] = {"type": "number", "maximum": most}
    if least is not None:
        number["minimum"] = least
    if not in_header:
        return number
    return {"anyOf": [number, {"type": "string", "pattern": _NUMBER_TEXT}, {"type": "null"}]}
