"""Whether other users may write a daemon's configuration, or read its secrets: the files' modes.

A user who can write the configuration chooses the commands that daemons run; one who can read a
secret has it. A group that may read is the usual way to give a file to a service, and accepted.
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupflow.core.checkup import Check
from groupflow.core.masking import has_secret

if TYPE_CHECKING:
    from groupflow.settings.load import Sources
    from groupflow.settings.model import Settings

_READABLE = stat.S_IROTH
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def examine_files(settings: Settings, sources: Sources) -> list[Check]:
    """A warning for each file with too open a mode, or that there is none."""
    found = list(_exposed(settings, sources))
    if found:
        return [Check("files", "warn", *each) for each in found]
    return [Check("files", "ok", "nobody else may write the configuration or read its secrets")]


def _exposed(settings: Settings, sources: Sources) -> Iterator[tuple[str, str]]:
    """What was found, and what to do, for each file."""
    if sources.file is not None:
        yield from _judge(sources.file, secret=_holds_secret(sources.file), what="configuration")
    if sources.secrets is not None:
        folder = sources.secrets
        yield from _judge(folder, secret=False, what="secrets directory")
        for name in sources.secret_files:
            yield from _judge(folder / name, secret=True, what="secret file")
    servers = (settings.rabbitmq, settings.redis)
    keys = [each.key_file or each.cert_file for each in servers]
    tokens = [each.token_file for each in (settings.http, *settings.http.tokens.values())]
    for name in dict.fromkeys(filter(None, [*tokens, *keys])):
        yield from _judge(Path(name), secret=True, what="secret file")


def _judge(path: Path, *, secret: bool, what: str) -> Iterator[tuple[str, str]]:
    try:
        status = path.stat()
    except OSError:  # loading has reported it, or its use will
        return
    mode = stat.S_IMODE(status.st_mode)
    is_folder = stat.S_ISDIR(status.st_mode)
    # In a folder with the sticky bit others may write, but not replace our files.
    is_sticky = is_folder and mode & stat.S_ISVTX
    can_write = 0 if is_sticky else mode & _WRITABLE
    can_read = mode & _READABLE if secret else 0
    if not (can_write or can_read):
        return
    who = "its group" if can_write | can_read == stat.S_IWGRP else "every user here"
    rights = ["write it"] * bool(can_write) + ["read its secrets"] * bool(can_read)
    remedy = f"chmod 600 {path}, or 640 with the daemon's group" if secret else f"chmod go-w {path}"
    yield f"{path}, the {what}, has mode {mode:04o}: {who} can {' and '.join(rights)}", f"{remedy}."


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
