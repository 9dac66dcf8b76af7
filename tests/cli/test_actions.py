"""What operators did, as `groupflow actions` tells it: by the verbs, bounded, and once."""

from __future__ import annotations

import getpass
from typing import Any

import pytest

from groupflow.cli.exits import Exit
from groupflow.operate import actions
from groupflow.operate.actions import latest, note
from groupflow.operate.scripts import OperatorVerb
from groupflow.store.scans import ScanRecords
from tests.cli.verbs import Verbs
from tests.operate.spread import Spread
from tests.operate.test_archiving import archive_all
from tests.page.context import client_of, configured
from tests.store.bench import arrival

NOBODY = "amqp://guest:guest@127.0.0.1:1/"  # nothing listens there
DONE: list[tuple[str, str, dict[str, Any], list[str], int]] = [  # and to how many tasks
    ("pause a --for 5m", "paused", {"group": "a", "seconds": 300.0}, [], 0),
    ("resume a", "resumed", {"group": "a"}, [], 0),
    ("resume a", "", {}, [], 0),
    ("pause --all", "paused", {"group": "everything"}, [], 0),
    ("resume --all", "resumed", {"group": "everything"}, [], 0),
    ("limit tenant 42 --rate 5/s", "limited",
     {"tenant": "42", "limits": "5/s", "seconds": 3600.0}, [], 0),
    ("limit tenant 42 --off", "unlimited", {"tenant": "42"}, [], 0),
    ("task cancel a0 a1 --reason wrong", "cancelled", {"reason": "wrong"}, ["a0", "a1"], 2),
    ("task cancel nobody", "", {}, [], 0),
    ("task cancel --group b --yes", "cancelled", {"group": "b"}, [], 3),
    ("task drop a2", "dropped_waiting", {}, ["a2"], 1),
    ("task run-now late1", "ran_now", {}, ["late1"], 1),
    ("task run-now --delayed late --yes", "ran_now", {"group": "late"}, ["late0"], 1),
    ("dead redrive d0", "redriven", {}, ["d0"], 1),
    ("dead drop --type t --since 1h --yes", "dropped", {"type": "t", "since": 3600.0}, ["d1"], 1),
    ("scans pause orders", "paused_scan", {"scan": "orders"}, [], 0),
    ("scans pause orders", "", {}, [], 0),
    ("scans resume orders", "resumed_scan", {"scan": "orders"}, [], 0),
    ("scans drop orders", "dropped_scan", {"scan": "orders"}, [], 0),
    ("scans drop nothing", "", {}, [], 0),
    ("schedules run nothing", "", {}, [], 0),
]  # fmt: skip

SAID = [  # of the same, in the page's words
    "paused  group a, for 5 min",
    "resumed  group a",
    "paused  everything",
    "resumed  everything",
    "limited  tenant 42, 5/s, for 60 min",
    "ended the limits  tenant 42",
    'cancelled  "wrong", 2 tasks: a0, a1',
    "cancelled  group b, 3 tasks",
    "dropped  1 task: a2",
    "made due  1 task: late1",
    "made due  group late, 1 task: late0",
    "redrove  1 task: d0",
    "dropped dead letters  type t, dead for 60 min at most, 1 task: d1",
    "paused  scan orders",
    "resumed  scan orders",
    "forgot  scan orders",
]


async def test_each_verb_that_acts_is_told(spread: Spread, groupflow: Verbs) -> None:
    home = spread.benches[spread.place_of("late")]
    await spread.enqueue(*(arrival(f"{group}{n}", group) for group in "ab" for n in range(3)))
    await spread.enqueue(*(arrival(f"d{n}", dead="no row") for n in range(2)))
    await home.enqueue(*(arrival(f"late{n}", "late", delay=3600.0) for n in range(2)))
    async with spread.namespace.common() as common:
        await ScanRecords(common).open("orders", 2)
    assert (await groupflow("actions")).out == "operators have done nothing yet\n"
    said = {words: (await groupflow(*words.split())).out for words, *_ in DONE}
    told = (await groupflow("actions", "--json")).json
    lines = (await groupflow("actions")).out.splitlines()
    cut = await groupflow("actions", "--limit", "2", "--json")
    assert (len(cut.json), "there may be more" in cut.err) == (2, True)
    names = ("what", "facts", "tasks", "count")
    assert [tuple(each[name] for name in names) for each in reversed(told)] == [
        (what, facts, tasks, count) for _, what, facts, tasks, count in DONE if what
    ]
    behind = "due 1\nlate1 waits: its group's head late0 doesn't start before 20"
    assert said["task run-now late1"].startswith(behind)
    assert said["task run-now --delayed late --yes"] == "due 1\n"
    user = getpass.getuser()
    assert {(each["by"], each["token"]) for each in told} == {(user, None)}
    assert [line.split(f"  {user}  ")[1] for line in reversed(lines)] == SAID


async def test_what_was_done_before_the_end_is_told(spread: Spread, groupflow: Verbs) -> None:
    """A letter's body lies in RabbitMQ, which is away: those in front of it are redriven."""
    groupflow.file.write_text(f'{groupflow.file.read_text()}[rabbitmq]\nurl = "{NOBODY}"\n')
    await spread.enqueue(arrival("away", dead="no row"))
    home = spread.benches[spread.place_of(None, "away")]
    await archive_all(home)
    await spread.enqueue(arrival("here", dead="no row"))
    said = await groupflow("dead", "redrive", "here", "away")
    assert (said.exit, "the body of away lies there" in said.err) == (Exit.UNAVAILABLE, True)
    await spread.enqueue(arrival("here too", dead="no row"))
    async with client_of(spread.namespace, configured() | {"rabbitmq": {"url": NOBODY}}) as api:
        answer = await api.post("/dead/redrive", json={"ids": ["here too", "away"]})
    assert answer.status_code == 503, answer.text
    told = [(each.what, each.tasks) for each in await latest(spread.namespace)]
    assert told == [("redriven", ["here too"]), ("redriven", ["here"])]


async def test_what_is_kept_is_bounded(spread: Spread, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many, each of so many bytes; steps to many tasks are one, and one step counts once."""
    namespace = spread.namespace
    monkeypatch.setattr(actions, "MOST", 5)
    for n in range(9):
        await note(namespace, "paused", "ada", group=f"g{n}" + "x" * 9999)
    assert [each.facts["group"][:2] for each in await latest(namespace)] == [
        f"g{n}" for n in range(8, 3, -1)
    ]
    assert len((await latest(namespace))[0].facts["group"]) < 400
    for n in range(3):
        await note(namespace, "dropped", "ada", tasks=[f"t{n}-{m}" for m in range(500)], type="t")
    await note(namespace, "dropped", "bob", tasks=["t"], type="t", token="ops")
    await note(namespace, "dropped", "ada", tasks=["t"], type="t")
    last = await latest(namespace, 3)
    assert [(each.by, each.token, each.count) for each in last] == [
        ("ada", None, 1), ("bob", "ops", 1), ("ada", None, 1500)
    ]  # fmt: skip
    assert last[2].tasks == (some := [f"t0-{n}" for n in range(10)])
    assert last[2].words.endswith(f"dead letters  type t, 1,500 tasks: {', '.join(some)}, …")
    for n in range(12):  # one by one: no id is lost
        await note(namespace, "ran_now", "ada", tasks=[f"r{n}"])
    singly = [task for each in await latest(namespace, 2) for task in each.tasks]
    assert sorted(singly) == sorted(f"r{n}" for n in range(12))
    await note(namespace, "dropped", "ada", tasks=["t"], type="t")
    async with namespace.common() as common:
        again = ("an id", b'["dropped","ada",null,{"type":"t"}]', 4, b'["x"]', 5, 60_000_000, 10)
        assert [await common.run(OperatorVerb.NOTE_ACTION, *again) for _ in range(2)] == [1, 0]
        assert (await latest(namespace))[0].count == 5
