"""What a damage is: an effect that a sound system never has, put at a seam which outlives the code.

Most sit at the boundary of the server: between a script and the Redis that it calls. Which keys
there are is known there, and how a script comes to its calls is not. Where only one condition of a
script gives the effect, that is named by a pattern, and one that matches nothing is an error. The
rest sit at methods of the product's classes.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from groupflow.store.scripts import AnyVerb, Order, Scripts
from tests.simulation.acts import LAYOUTS
from tests.simulation.redis_side import RealRedis

_HITS = "sim:hits"
_SEAM = """
local SIM_LOOKS, claims, bulk = 0, false, false
local function SIM_CALL(command, key, ...)
  local kind = key
  if type(key) == 'string' and string.sub(key, 1, #KEYS[1]) == KEYS[1] then
    kind = string.match(string.sub(key, #KEYS[1] + 1), '^[%%a_]+')
  end
  local args = {...}
  if '%s' == 'exchange' and command == 'HMGET' and kind == 'worker' and not bulk then
    SIM_LOOKS = SIM_LOOKS + 1
    claims = SIM_LOOKS > (ARGV[4] == '0' and ARGV[5] == '0' and ARGV[7] == '0' and 0 or 1)
  end
  if (%s) then
    redis.call('INCR', 'sim:hits')
    %s
  end
  return redis.call(command, key, ...)
end
"""
_IN_BULK = "local done = do_in_bulk()"


class MatchesNothing(Exception):
    """A damage changes nothing: what it was about is gone, or has another form."""


class Hits:
    """How often a damage had its effect, in this process and those that it has forked."""

    def __init__(self) -> None:
        self._shared = memoryview(mmap.mmap(-1, 8)).cast("q")

    @property
    def number(self) -> int:
        """How often."""
        return self._shared[0]

    def hit(self, times: int = 1) -> None:
        """Once more, or some times."""
        self._shared[0] += times


@dataclass(frozen=True, slots=True)
class Damage:
    """An effect.

    Attributes:
        name: on the command line.
        says: the effect, in words.
        unseen: why no run can show it; empty where one has to.
    """

    name: str
    says: str
    unseen: str = field(default="", kw_only=True)

    def in_script(self, verb: str, text: str) -> str:
        """A script with the damage; the same where it has none."""
        return text

    def in_product(self, hits: Hits) -> list[AbstractContextManager[Any]]:
        """What of the product is replaced."""
        return []


@dataclass(frozen=True, slots=True)
class Effect(Damage):
    """A call of a script to Redis that has another effect, or none.

    Attributes:
        where: Lua: which calls, by `command`, `key`, its `kind`, and `args` behind it; `bulk` is
            whether an exchange tries to settle and claim in bulk; by the rules, `claims` is whether
            it has settled all, and claims: it looks at its slots then.
        instead: Lua: what happens in place of the call; what the script is answered.
        verbs: of which scripts, by name; of all where none is named.
    """

    where: str
    instead: str
    verbs: tuple[str, ...] = ()

    def in_script(self, verb: str, text: str) -> str:
        """Its calls go through the seam."""
        if self.verbs and verb not in self.verbs:
            return text
        lines = text.split("\n")
        at = 1 if text.startswith("#!") else 0
        rest = "\n".join(lines[at:]).replace("redis.call", "SIM_CALL")
        if verb == "exchange":
            if _IN_BULK not in rest:
                raise MatchesNothing(f"{self.name}: an exchange has no {_IN_BULK!r}")
            rest = rest.replace(_IN_BULK, f"bulk = true {_IN_BULK} bulk = false")
        return "\n".join([*lines[:at], _SEAM % (verb, self.where, self.instead), rest])


def without(
    name: str,
    says: str,
    commands: str,
    kind: str,
    reply: str,
    *verbs: str,
    also: str = "true",
    unseen: str = "",
) -> Effect:
    """Some commands on some kind of key aren't run, and answered as if they were."""
    wanted = " or ".join(f"command == '{each}'" for each in commands.split())
    where = f"({wanted}) and kind == '{kind}' and {also}"
    return Effect(name, says, where, f"do return {reply} end", tuple(verbs), unseen=unseen)


EXCHANGE = ("exchange",)
SETTLING = ("exchange", "retry", "advance", "bury")
"""Scripts that settle; of an exchange's calls that is some: those that are not `claims`."""
ENDING = ("reap", "register", "leave")
"""Scripts that end claims without a settle."""


@dataclass(frozen=True, slots=True)
class Condition(Damage):
    """Lines of scripts that say something else.

    Attributes:
        changes: a regular expression each, and what stands there instead.
    """

    changes: tuple[tuple[str, str], ...]

    def in_script(self, verb: str, text: str) -> str:
        """Every match of every pattern is replaced."""
        for pattern, instead in self.changes:
            text = re.sub(pattern, instead, text)
        return text

    def unmatched(self, texts: Iterable[str]) -> list[str]:
        """The patterns that none of some scripts has."""
        known = list(texts)
        return [
            pattern
            for pattern, _ in self.changes
            if not any(re.search(pattern, text) for text in known)
        ]


@dataclass(frozen=True, slots=True)
class Replaced(Damage):
    """A method of the product that does something else.

    Attributes:
        owner: its class.
        method: its name.
        instead: makes the other one of the sound one, and notes each time that it does harm.
    """

    owner: type
    method: str
    instead: Callable[[Any, Hits], Any]

    def in_product(self, hits: Hits) -> list[AbstractContextManager[Any]]:
        """The class has the other method."""
        sound = self.owner.__dict__[self.method]
        return [patch.object(self.owner, self.method, self.instead(sound, hits))]


class DamagedRedis(RealRedis):
    """A real server that is given damaged scripts."""

    def __init__(self, path: str, damage: Damage) -> None:
        """Connect to a Unix socket."""
        super().__init__(path)
        self._damage = damage
        self._verbs: dict[str, str] = {}
        self.changed = False
        """Whether a script that was loaded has the damage."""

    def load_all(self, order: Order, partitions: int) -> frozenset[str]:
        """Note which script is which, first.

        Raises:
            MatchesNothing: none of them has what the damage is about.
        """
        for number in {0, partitions, *LAYOUTS}:  # the namespace may be moved
            scripts = Scripts(order, partitions=number)
            for room in AnyVerb.__subclasses__():
                self._verbs |= {scripts[verb].text: str(verb) for verb in room}
        if isinstance(self._damage, Condition):
            for pattern in self._damage.unmatched(self._verbs):
                raise MatchesNothing(f"{self._damage.name}: no script has {pattern!r}")
        return super().load_all(order, partitions)

    def written(self, text: str) -> str:
        """With the damage."""
        sound = super().written(text)
        damaged = self._damage.in_script(self._verbs[text], sound)
        self.changed |= damaged != sound
        return damaged

    def take_hits(self) -> int:
        """How often a script's call had the effect, in this run."""
        found: Any = self.raw.get(_HITS)
        return int(found or 0)


@contextmanager
def damaged(damage: Damage, hits: Hits) -> Iterator[None]:
    """The product has it meanwhile."""
    with ExitStack() as stack:
        for each in damage.in_product(hits):
            stack.enter_context(each)
        yield
