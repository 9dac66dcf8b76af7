"""What this machine lets others do: who can reach `[http]`, who can read or write our files.

A user who can write the configuration chooses the commands that daemons run; one who can read a
secret has it. A group that may read is the usual way to give a file to a service, and accepted.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupflow.core.checkup import Check
from groupflow.core.masking import has_secret
from groupflow.doctor.table import judge
from groupflow.settings.load import Sources
from groupflow.settings.model import Http, Settings
from groupflow.settings.transport import is_loopback

_IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set in each of its containers
# A daemon with another environment may have one, as that of `groupflow dev` has.
_NO_ACTIONS = "no actions by this configuration: http.token is not set"
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def examine_http(http: Http) -> list[Check]:
    """Which machines can reach the page and the daemon's health, and what callers may do there.

    Raises:
        ConfigError: a token's file can't be used.
    """
    acts = any("act" in each.rights for each in http.read_holders().values())
    return judge(
        *("http.listen", "http.health"),
        listen=http.listen,
        listens_here=is_loopback(http.listen),
        looking="looking is open to all" if http.is_open else "looking needs the token",
        actions="actions by token" if acts else _NO_ACTIONS,
        health=http.health,
        tells_here=is_loopback(http.health),
        in_kubernetes=_IN_KUBERNETES in os.environ,
    )


def examine_files(settings: Settings, sources: Sources) -> list[Check]:
    """A warning for each file with too open a mode, or that there is none."""
    files = list(_files(settings, sources))
    return [check for each in files for check in _judge(*each)] or judge("files", can="")


def _files(settings: Settings, sources: Sources) -> Iterator[tuple[Path, str, bool]]:
    """Each file: its path, what it is, and whether it holds a secret."""
    if sources.file is not None:
        yield sources.file, "configuration", _holds_secret(sources.file)
    if sources.secrets is not None:
        yield sources.secrets, "secrets directory", False
        for name in sources.secret_files:
            yield sources.secrets / name, "secret file", True
    servers = (settings.rabbitmq, settings.redis)
    keys = [each.key_file or each.cert_file for each in servers]
    tokens = [each.token_file for each in (settings.http, *settings.http.tokens.values())]
    for name in dict.fromkeys(filter(None, [*tokens, *keys])):
        yield Path(name), "secret file", True


def _judge(path: Path, what: str, secret: bool) -> list[Check]:
    try:
        mode = path.stat().st_mode
    except OSError:  # loading has reported it, or its use will
        return []
    # In a folder with the sticky bit others may write, but not replace our files.
    is_sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
    can_write = 0 if is_sticky else mode & _WRITABLE
    can_read = mode & stat.S_IROTH if secret else 0
    if not (can_write or can_read):
        return []
    rights = ["write it"] * bool(can_write) + ["read its secrets"] * bool(can_read)
    who = "its group" if can_write | can_read == stat.S_IWGRP else "every user here"
    facts = {"path": path, "what": what, "mode": stat.S_IMODE(mode), "who": who, "secret": secret}
    return judge("files", can=" and ".join(rights), **facts)


def _holds_secret(path: Path) -> bool:
    """Whether a configuration file holds a secret; an unreadable one counts as none."""
    try:
        return _any_secret(tomllib.loads(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError):
        return False


def _any_secret(value: Any, name: str = "") -> bool:
    if isinstance(value, dict):
        return any(_any_secret(each, key) for key, each in value.items())
    if isinstance(value, list):
        return any(_any_secret(each, name) for each in value)
    return isinstance(value, str) and ((name == "token" and bool(value)) or has_secret(value))
