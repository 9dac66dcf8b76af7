"""What a damage is: an effect that a sound system never has, put at a seam which outlives the code.

Most sit at the boundary of the server: between a script and the Redis that it calls. Which keys
there are is known there, and how a script comes to its calls is not. Where only one condition of a
script gives the effect, that is named by a pattern, and one that matches nothing is an error. The
rest sit at methods of the product's classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from unittest.mock import patch

from groupflow.store.scripts import AnyVerb, Order
from tests.simulation.acts import LAYOUTS
from tests.simulation.configured import scripts_of
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


@dataclass(frozen=True, slots=True)
class Damage:
    """An effect.

    Attributes:
        told: its name on the command line, a colon, and the effect in words.
        unseen: why no run can show it; empty where one has to.
    """

    told: str
    unseen: str = field(default="", kw_only=True)

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.told.partition(": ")[0]

    def in_script(self, verb: str, text: str) -> str:
        """A script with the damage; the same where it has none."""
        return text

    def in_product(self) -> AbstractContextManager[Any] | None:
        """Replaces something of the product; `None` where it is not about that."""
        return None


EXCHANGE = ("exchange",)
SETTLING = ("exchange", "retry", "advance", "bury")
"""Scripts that settle; of an exchange's calls that is some: those that are not `claims`."""
ENDING = ("reap", "register", "leave")
"""Scripts that end claims without a settle."""


@dataclass(frozen=True, slots=True)
class Effect(Damage):
    """A call of a script to Redis that has another effect, or none.

    Attributes:
        calls: which commands, and behind them on which kind of key.
        instead: Lua: what happens in place of the call; what the script is answered.
        verbs: of which scripts, by name; of all where none is named.
        also: Lua: what else such a call has, by `command`, `key`, and `args` behind it; `bulk` is
            whether an exchange tries to settle and claim in bulk; by the rules, `claims` is whether
            it has settled all, and claims: it looks at its slots then.
    """

    calls: str
    instead: str
    verbs: tuple[str, ...] = ()
    also: str = field(default="true", kw_only=True)

    def in_script(self, verb: str, text: str) -> str:
        """Its calls go through the seam."""
        if self.verbs and verb not in self.verbs:
            return text
        *commands, kind = self.calls.split()
        wanted = " or ".join(f"command == '{each}'" for each in commands)
        where = f"({wanted}) and kind == '{kind}' and {self.also}"
        lines = text.split("\n")
        at = 1 if text.startswith("#!") else 0
        rest = "\n".join(lines[at:]).replace("redis.call", "SIM_CALL")
        if verb == "exchange":
            if _IN_BULK not in rest:
                raise MatchesNothing(f"{self.name}: an exchange has no {_IN_BULK!r}")
            rest = rest.replace(_IN_BULK, f"bulk = true {_IN_BULK} bulk = false")
        return "\n".join([*lines[:at], _SEAM % (verb, where, self.instead), rest])


def without(told: str, calls: str, *verbs: str, reply: str = "1", **facts: str) -> Effect:
    """Some commands on some kind of key aren't run, and answered as if they were."""
    return Effect(told, calls, f"do return {reply} end", verbs, **facts)


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


def changed(told: str, *changes: tuple[str, str], unseen: str = "") -> Condition:
    """Lines of scripts that match a pattern say something else."""
    return Condition(told, changes, unseen=unseen)


Instead: TypeAlias = Callable[..., Any]
"""What runs in a method's place, given the sound method and what that is given."""


@dataclass(frozen=True, slots=True)
class Replaced(Damage):
    """A method of the product that does something else.

    Attributes:
        owner: its class.
        method: its name.
        instead: what runs in its place.
    """

    owner: type
    method: str
    instead: Instead

    def in_product(self) -> AbstractContextManager[Any]:
        """The class has the other method."""
        sound = self.owner.__dict__[self.method]

        def method(this: Any, *args: Any, **options: Any) -> Any:
            return self.instead(sound, this, *args, **options)

        made = property(method) if isinstance(sound, property) else method
        return patch.object(self.owner, self.method, made)


class Replacements(list[Damage]):
    """Damages made of functions: their names are the damages', and their docstrings tell them."""

    def of(self, owner: type, method: str, unseen: str = "") -> Callable[[Instead], Instead]:
        """A function runs in place of a method."""

        def add(instead: Instead) -> Instead:
            name, says = instead.__name__.replace("_", "-"), (instead.__doc__ or "").rstrip(".")
            told = f"{name}: {says[:1].lower()}{says[1:]}"
            self.append(Replaced(told, owner, method, instead, unseen=unseen))
            return instead

        return add


class DamagedRedis(RealRedis):
    """A real server that is given damaged scripts."""

    def __init__(self, path: str, damage: Damage) -> None:
        """Connect to a Unix socket."""
        super().__init__(path)
        self._damage = damage
        self._verbs: dict[str, str] = {}
        self.changed = False
        """Whether a script that was loaded has the damage."""

    def know_all(self, order: Order, partitions: int, *, tells: bool) -> frozenset[str]:
        """Note which script is which, first.

        Raises:
            MatchesNothing: none of them has what the damage is about.
        """
        for number in {0, partitions, *LAYOUTS}:  # the namespace may be moved
            scripts = scripts_of(order, number, tells=tells)
            for room in AnyVerb.__subclasses__():
                self._verbs |= {scripts[verb].text: str(verb) for verb in room}
        if isinstance(self._damage, Condition):
            for pattern in self._damage.unmatched(self._verbs):
                raise MatchesNothing(f"{self._damage.name}: no script has {pattern!r}")
        return super().know_all(order, partitions, tells=tells)

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
