"""The log: events on stderr, JSON for machines, readable on a terminal, safe with strangers' text.

Log values come partly from strangers (ids, group keys, reasons). So before a write the log hides
passwords in URLs, and escapes what isn't printable, in JSON as JSON does: no value can forge a line
or drive the terminal that shows it. Nothing here raises into the caller: a log line that can't be
written is lost, and the task goes on.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from groupflow.core.masking import mask_secrets, plain_json, plain_text

_LIBRARIES = ("aio_pika", "aiormq", "redis", "asyncio", "uvicorn", "httpx")
_MAX_DEPTH = 7
_MAX_INTEGER = 2**63
_TRACEBACK = "exception"


def configure_logging(level: str = "info", format: str = "auto") -> None:
    """Set up structlog and the standard library's logging, both to stderr.

    Chatty libraries log from warnings on; a handler's logs through the standard library follow
    `level`. The format is json, console, or auto: console where stderr is a terminal, JSON
    elsewhere.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    as_json = format == "json" or (format == "auto" and not _is_terminal())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        # People read seconds, on a line that fits; a program sorts by fractions too.
        structlog.processors.TimeStamper(fmt="iso" if as_json else "%H:%M:%S", utc=True),
    ]
    rendering = _rendering(as_json=as_json)
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_StderrLogger,
        cache_logger_on_first_use=False,
    )
    _route_standard_library(number, shared, rendering)


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # no stderr, or a closed one
        return False


def _rendering(*, as_json: bool) -> list[Processor]:
    """The processors from an event to a line."""
    if as_json:
        return [structlog.processors.format_exc_info, _to_json]
    console = structlog.dev.ConsoleRenderer(
        colors=_is_terminal(),
        exception_formatter=structlog.dev.plain_traceback,
        pad_event_to=24,
    )
    return [structlog.processors.format_exc_info, _tidy_for_console, console]


def _route_standard_library(
    number: int, shared: list[Processor], rendering: list[Processor]
) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _name_the_logger],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
    handler = _StderrHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, _StderrHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(number)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


class _StderrLogger:
    """Writes lines to the current stderr, and never raises."""

    def __init__(self, *_: Any) -> None:
        pass

    def msg(self, message: str) -> None:
        """Write one line; drop one that can't be written."""
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(message + "\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = exception = log = fatal = msg


class _StderrHandler(logging.Handler):
    """The same for the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = self.format(record)
        except Exception as error:  # noqa: BLE001  a caller's wrong format string
            message = f"log record of {record.name} can't be shown: {type(error).__name__}"
        _StderrLogger().msg(message)


def _name_the_logger(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    if record is not None:
        event["logger"] = record.name
        event.pop("message", None)  # left on the record by another formatter: the event again
    return event


def _to_json(_logger: WrappedLogger, _name: str, event: EventDict) -> str:
    """A line of values that JSON can carry; orjson escapes control characters by itself."""
    return plain_json(orjson.dumps(_value(event, True, 0)).decode())


def _tidy_for_console(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Values on one line each; a traceback keeps its lines, each behind a bar."""
    traceback = event.pop(_TRACEBACK, None)
    tidy: EventDict = _value(event, False, 0)
    if traceback is not None:
        lines = mask_secrets(str(traceback)).split("\n")
        tidy[_TRACEBACK] = "\n".join("  | " + plain_text(line) for line in lines)
    return tidy


def _value(value: Any, as_json: bool, depth: int) -> Any:
    """Any value as one that can be shown or dumped."""
    if value is None or isinstance(value, bool | float):
        # orjson refuses a float of a class below it, such as numpy's.
        return float(value) if isinstance(value, float) else value
    if isinstance(value, int):
        return int(value) if -_MAX_INTEGER <= value < _MAX_INTEGER else _describe(value)
    if isinstance(value, str | bytes | bytearray):
        return _text(value, as_json)
    if depth < _MAX_DEPTH:
        with suppress(Exception):  # a mapping of a stranger's; what is copied may change meanwhile
            if isinstance(value, Mapping):
                pairs = [*value.items()]
                return {_text(k, as_json): _value(v, as_json, depth + 1) for k, v in pairs}
            if isinstance(value, list | tuple | set | frozenset):
                return [_value(each, as_json, depth + 1) for each in [*value]]
    return _text(value, as_json)


def _text(value: Any, as_json: bool) -> str:
    if isinstance(value, bytes | bytearray):
        value = value.decode(errors="backslashreplace")
    # Of no class below `str`, such as an enum's: orjson refuses it as a name.
    text = str.__str__(mask_secrets(value if isinstance(value, str) else _describe(value)))
    if as_json:  # a surrogate is the one thing that can't be encoded
        return text if text.isascii() else text.encode(errors="backslashreplace").decode()
    return plain_text(text)


def _describe(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001  a failing __str__, or an integer of 5000 digits
        return f"<{type(value).__name__}>"
