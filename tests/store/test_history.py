"""The history: what is over is remembered for the dedup window, then forgotten whole."""

from __future__ import annotations

from typing import Any

from groupflow.store.history import rotate_history
from tests.store.bench import Bench
from tests.store.story import Story, named, stories
from tests.store.task_state import HOUR


class Rotated(Story):
    """A store whose history is kept for an hour."""

    async def rotate(self, size: str, is_done: str) -> None:
        """A rotation where so many are enough for a segment, and whether it does anything."""
        done = await rotate_history(self.shop.client, keep=HOUR, size=int(size))
        assert str(done).lower() == is_done

    async def age(self, seconds: str) -> None:
        """Segments are so much older."""
        key = self.shop.keys("segments")
        segments: Any = self.shop.raw.hgetall(key)
        for name, at in segments.items():
            self.shop.raw.hset(key, name, f"{int(at) - int(seconds) * 1_000_000:016d}")


STORIES = named(
    """
    an id is known for the whole window::
        rotate 10 false | take p0 | drain p0 | age 1800 | rotate 10 false | age 1800
        rotate 10 true | duplicates p0 | unchanged rotate 10 false | age 1800 | rotate 10 false
        duplicates p0 | age 1800 | rotate 10 true | gone history_new history_old | take p0
    a full segment closes early, and the one before stays for its window::
        rotate 2 false | take p0 p1 | drain p0 p1 | rotate 2 true | take q0 q1 | drain q0 q1
        rotate 2 false | duplicates p0 q0 | size history_old=2 history_new=2
    an empty segment that has aged begins again: what ends next is not old::
        rotate 10 false | unchanged rotate 10 false | age 7200 | rotate 10 false | take p0
        drain p0 | rotate 10 false
    where no older segment is kept a full one closes at once::
        rotate 1 false | take p0 | drain p0 | rotate 1 true | age 3600 | rotate 1 true | take q0
        drain q0 | rotate 1 true
    """
)


@stories(STORIES)
async def test_rotation(shop: Bench, story: str) -> None:
    await Rotated(shop).go_on(story)
