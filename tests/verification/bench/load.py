"""What a run has to do: so many tasks in so many groups, of so many milliseconds each.

A task is known by its number alone: from it follow its group and its place there, so that a record
of a run needs nothing else.
"""

from __future__ import annotations

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
        type: of their messages, which chooses the handler.
        body: bytes of each body.
    """

    tasks: int
    groups: int
    hot: float = 0.0
    handler_ms: float = 0.0
    type: str = "one"
    body: int = 200

    def group_of(self, number: int) -> int:
        """The number of a task's group."""
        hot_before = int(number * self.hot)
        if int((number + 1) * self.hot) > hot_before:
            return HOT
        return (number - hot_before) % self.groups

    def body_of(self, number: int) -> bytes:
        """A task's body: JSON, with the number where a slice finds it (`number_in`)."""
        head = (
            f'{{"n":"{number:09d}","type":"{self.type}","app_name":"bench","tenant_id":"1",'
            f'"entity":"g{self.group_of(number)}","pad":"'
        )
        return f'{head}{"x" * (self.body - len(head) - 2)}"}}'.encode()


def number_in(body: bytes) -> int:
    """The number in a body: a slice, so that reading it costs as good as nothing."""
    return int(body[6:15])
