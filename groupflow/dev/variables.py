"""The variables of a session, which win over what a file says of other servers and another page.

So a session runs beside any file, one of production too, whose rules are the application's.
"""

from __future__ import annotations

import secrets
import tomllib
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from groupflow.core.errors import ConfigError
from groupflow.settings.load import PREFIX, find_sources
from groupflow.settings.model import Http
from groupflow.settings.transport import TLS_FILES

URL, TOKEN = f"{PREFIX}URL", f"{PREFIX}TOKEN"  # of the page, for verbs that call it

# Private servers have no TLS, no management API and no replicas.
_SERVERS = {
    f"{PREFIX}{section}__{name.upper()}": ""
    for section in ("RABBITMQ", "REDIS")
    for name in TLS_FILES
} | {f"{PREFIX}RABBITMQ__MANAGEMENT": "", f"{PREFIX}REDIS__REPLICAS": "0"}


def of_daemon(config: Path | None, page: str, token: str) -> dict[str, str]:
    """What a session's daemon is told beside the URLs of its servers.

    Args:
        config: the file, if one is named.
        page: the address of its page.
        token: what the page asks for.
    """
    ours = {
        "HTTP__LISTEN": page,
        "HTTP__HEALTH": "",  # which may be open to the network
        "HTTP__TOKEN": token,
        "HTTP__TOKEN_FILE": "",
        "LOG__LEVEL": "debug",  # has a line for each task
        "LOG__FORMAT": "json",
        "WORKERS__DRAIN": "2",
    }
    if tokens := _tokens(config):
        ours["HTTP__TOKENS"] = orjson.dumps(tokens).decode()
    if find_spec("opentelemetry") is None:
        ours["TRACES__ENABLED"] = "false"  # else it would not start
    return _SERVERS | {f"{PREFIX}{name}": text for name, text in ours.items()}


def of_verbs(config: Path | None) -> dict[str, str]:
    """What other verbs have to be told beside URLs, as the file or a variable says otherwise."""
    said = {
        f"{PREFIX}{section}__{name}".upper()
        for section, table in _file(config).items()
        if isinstance(table, dict)
        for name in table
    }
    with suppress(ConfigError):
        sources = find_sources(config)
        said.update(name.upper() for name in (*sources.variables, *sources.secret_files))
    return {name: text for name, text in _SERVERS.items() if name in said}


def _tokens(config: Path | None) -> dict[str, Any]:
    """Other tokens in place of those in files, which only the machines of production may have."""
    http = Http()
    with suppress(ValueError):
        http = Http.model_validate(_file(config).get("http", {}))
    named = (name for name, table in http.tokens.items() if table.token_file)
    return {name: {"token": secrets.token_urlsafe(16), "token_file": ""} for name in named}


def _file(config: Path | None) -> dict[str, Any]:
    """What the file says; nothing where it can't be read: the daemon says why."""
    with suppress(ConfigError, OSError, ValueError, RecursionError):
        if (file := find_sources(config).file) is not None:
            return tomllib.loads(file.read_text("utf-8"))
    return {}
