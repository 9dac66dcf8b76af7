"""Tokens that callers show at `[http] listen`: where each comes from, and its rights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from groupflow.core.errors import ConfigError, Problem
from groupflow.settings.types import FileName, Section, Token, check_token

Right = Literal["look", "act", "publish", "pull", "fill"]

ALL_RIGHTS: frozenset[Right] = frozenset({"look", "act", "publish", "pull", "fill"})
OPERATOR = "operator"  # the holder of `[http]`'s own token
_AT_ONCE = 2  # tokens in a file: the old one, and its replacement


class HasToken(Section):
    """A token, from here or from its file."""

    token: Token = SecretStr("")
    """What callers show to do more than may be done without; empty: nothing."""
    token_file: FileName = ""
    """File that holds the token, in place of `token`; or two, a line each, while one replaces the
    other. It is read again when it changes."""

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if self.token.get_secret_value() and self.token_file:
            raise ValueError("Give it token or token_file, not both.")
        return self

    def read_tokens(self, section: str) -> tuple[str, ...]:
        """The tokens, any of which will do; none where none is set.

        Args:
            section: what the table is called, for the error.

        Raises:
            ConfigError: the file can't be read, or what it holds is no token.
        """
        if not self.token_file:
            text = self.token.get_secret_value()
            return (text,) if text else ()
        try:
            lines = Path(self.token_file).read_text("utf-8", "replace").split()
            if not 1 <= len(lines) <= _AT_ONCE:
                raise ValueError("Write one token into it, or two while one replaces the other.")
            for line in lines:
                check_token(line)
        except (OSError, ValueError) as error:
            remedy = str(error)
            if isinstance(error, OSError):
                remedy = f"It can't be read ({error.strerror}). Check the path and its permissions."
            raise ConfigError([Problem(f"{section}.token_file", self.token_file, remedy)]) from None
        return tuple(lines)


class NamedToken(HasToken):
    """`[http.tokens.NAME]`: a token that lets its holder do some things and no others."""

    rights: tuple[Right, ...] = Field(min_length=1)
    """What it lets its holder do: look (all that is shown, bodies too), act (all that changes
    tasks, groups, limits, schedules and scans), publish (`POST /api/tasks`, and follow-up tasks of
    what it pulls), pull (claim from pools, and settle), fill (make a pool equal to a list)."""
    pools: tuple[str, ...] = ()
    """The pools that it may pull from and fill; none named: all."""

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if not (self.token.get_secret_value() or self.token_file):
            raise ValueError("Give it token or token_file.")
        if self.pools and not {"pull", "fill"}.intersection(self.rights):
            raise ValueError('Leave out pools, or give it the right "pull" or "fill".')
        return self


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of a token."""

    name: str  # what the configuration calls the token, for the log
    rights: frozenset[Right]
    pools: frozenset[str] = frozenset()  # for which "pull" and "fill" are; empty: all

    def may_use(self, pool: str) -> bool:
        """Whether its rights in pools hold for this one."""
        return not self.pools or pool in self.pools
