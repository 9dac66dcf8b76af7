"""What a run has to do: so many tasks in so many groups, of so many milliseconds each.

A task is known by its number alone: from it follow its group and its place there, so that a record
of a run needs nothing else, and whoever checks it asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

HOT = 999_999
"""The number of the one hot group."""


@dataclass(frozen=True, slots=True)
class Load:
    """Tasks, numbered from 0 in the order in which they are queued.

    Attributes:
        tasks: how many.
        groups: in how many groups, one task each in turn.
        hot: the share of tasks that is in one further group instead.
        handler_ms: milliseconds that the handler of each sleeps; 0: it does nothing.
        body: bytes of each body.
        app: the application that bodies name; only those of `bench` are grouped.
    """

    tasks: int
    groups: int
    hot: float = 0.0
    handler_ms: float = 0.0
    body: int = 200
    app: str = "bench"

    def group_of(self, number: int) -> int:
        """The number of a task's group."""
        hot_before = int(number * self.hot)
        if int((number + 1) * self.hot) > hot_before:
            return HOT
        return (number - hot_before) % self.groups

    def body_of(self, number: int) -> bytes:
        """A task's body: JSON, with the number where a slice finds it (`number_in`)."""
        head = (
            f'{{"n":"{number:09d}","type":"bench","app_name":"{self.app}","tenant_id":"1",'
            f'"entity":"g{self.group_of(number)}","pad":"'
        )
        return f'{head}{"x" * (self.body - len(head) - 2)}"}}'.encode()

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """Number, group and body of each task."""
        for number in range(self.tasks):
            yield number, self.group_of(number), self.body_of(number)


def number_in(body: bytes) -> int:
    """The number in a body: a slice, so that reading it costs as good as nothing."""
    return int(body[6:15])
