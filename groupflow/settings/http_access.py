"""Who may reach `[http]`: where it listens, which token it asks for, and when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from groupflow.core.errors import ConfigError, Problem
from groupflow.settings.transport import stays_here
from groupflow.settings.types import check_token

if TYPE_CHECKING:
    from groupflow.settings.model import Http


def is_loopback(listen: str) -> bool:
    """Whether only this machine can reach an address to listen on."""
    return stays_here(f"http://{listen}")


def token_of(http: Http) -> str:
    """The token, from the settings or its file; empty where there is none.

    Raises:
        ConfigError: the file can't be read, or what it holds is no token.
    """
    if not http.token_file:
        return http.token.get_secret_value()
    try:
        text = Path(http.token_file).read_text("utf-8").strip()
        check_token(text)
    except OSError as error:
        remedy = f"It can't be read ({error.strerror}). Check the path and its permissions."
        raise ConfigError([Problem("http.token_file", http.token_file, remedy)]) from None
    except ValueError as error:
        raise ConfigError([Problem("http.token_file", http.token_file, str(error))]) from None
    return text


def reading_is_open(http: Http) -> bool:
    """Whether looking needs no token."""
    return http.read == "open" or (http.read == "auto" and is_loopback(http.listen))
