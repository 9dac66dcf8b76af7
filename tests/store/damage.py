"""One line of a script damaged on purpose, and the test that has to see it.

A damage replaces one line of a script, or of the rules in front of it. It is caught where the named
test fails, or the auditor that ends each of those tests names what is wrong; without the damage the
same test passes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from groupflow.servers import RedisServer
from groupflow.store.keys import Keys, spelled
from groupflow.store.rendering import Script
from groupflow.store.scripts import AnyVerb, Order, Scripts
from tests.store.bench import Bench

KEYS = Keys("damaged")

Seen = Callable[[Bench], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Damage:
    """One line gone wrong, and the test that has to see it."""

    name: str
    verb: AnyVerb
    sound: str
    broken: str
    seen: Seen
    order: Order = "oldest"


def same(test: Callable[..., Awaitable[None]], *arguments: object) -> Seen:
    """A test with its parameters bound."""
    return lambda shop: test(shop, *arguments)


async def assert_seen(server: RedisServer, damage: Damage) -> None:
    """The test of a damage finds nothing wrong without it, and something with it."""
    for broken in (False, True):
        scripts = Scripts(damage.order)
        used = _damaged(scripts, damage) if broken else scripts
        shop = Bench(server.url, keys=KEYS, order=damage.order, scripts=used)
        try:
            assert await _is_seen(shop, damage.seen) == broken
        finally:
            await shop.close()


def _damaged(scripts: Scripts, damage: Damage) -> Scripts:
    text = scripts[damage.verb].text
    sound, broken = spelled(damage.sound), spelled(damage.broken)
    assert sound in text, f"{damage.verb} has changed: {damage.sound!r} is gone"
    scripts[damage.verb] = Script.of(text.replace(sound, broken))
    return scripts


async def _is_seen(shop: Bench, test: Seen) -> bool:
    """Whether a test, or the auditor at its end, finds fault."""
    try:
        await test(shop)
    except (Exception, pytest.fail.Exception):  # the latter where an error is missing
        return True
    return shop.audit() != []
