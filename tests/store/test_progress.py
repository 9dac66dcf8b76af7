"""How far attempts have got: it is told of the claim whose handler said so, and of no other."""

from __future__ import annotations

import pytest

from groupflow.core.progress import Progress, pack_progress
from tests.store.story import played

test_progress = played(
    """
    the last word of {task}'s handler is told while it runs::
        take {task} | claim {task} | seen {task} - | said {task} 400 1000 rows
        seen {task} 400 of 1,000 rows, 40 % | said {task} 401 | seen {task} 401
        retry {task} | seen {task} - | time | claim {task}/2 | seen {task} -
        unchanged said {task}' 402 | seen {task} -
    the next task of a slot begins without::
        take a0 a1 | claim a0 | said a0 1 | swap a0 a1 | seen a1 - | unchanged said a0 2 | seen a1 -
        said a1 3 | seen a1 3 | done a1 | unchanged said a1 4
    why tells it::
        take a0 | claim a0 | said a0 29 100 | why a running: it has done 29 of 100, 29 %
    in a run it is the task's that runs::
        runs 3 | take a0 a1 a2 | claim a0>a1>a2 | said a0 1 | seen a0 1
        unchanged said a1 2 | tell a0 > a1 | seen a1 - | said a1 2 | seen a1 2
    whoever has lost a task says nothing of it::
        take a0 | claim a0 | said a0 1 | lose d1 a0 | SessionLost unchanged said a0 2
        d2: claim a0*1 | seen a0 - | said a0 3 | seen a0 3
    a worker that pulls says it too::
        take a0= | anna: all a0 | said a0 1 4 doors | seen a0 1 of 4 doors, 25 %
        lose anna a0 | anna: all a0*1 | seen a0 -
    """,
    task=("a0", "p0"),
)


@pytest.mark.parametrize(
    ("figures", "what"),
    [
        *(((figure,), "done") for figure in (-1, float("nan"), float("inf"), 2**53 + 1, True, "1")),
        *(((1, figure), "total") for figure in (0, 1e-310, -1, "2")),
        *(((1, 2, text), "unit") for text in ("x" * 33, "a\nb", "\ud800", 3)),
    ],
)
def test_figures_that_cant_be_used(figures: tuple[object, ...], what: str) -> None:
    with pytest.raises(ValueError, match=f"{what} .*, (not|unlike) "):
        pack_progress(*figures)


def test_words() -> None:
    """A hundred per cent is all; what is over it is told as it is."""
    shares = [Progress(done, 1000, "", 0.0, 1234.4).words() for done in (999.99, 1000, 1200)]
    assert shares == [
        "999.99 of 1,000, 99 % (1,234 s ago)",
        "1,000 of 1,000, 100 % (1,234 s ago)",
        "1,200 of 1,000, 120 % (1,234 s ago)",
    ]
