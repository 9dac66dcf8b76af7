"""What `groupflow task` and `why` say of tasks that are over."""

from __future__ import annotations

from groupflow.cli.options import moment
from groupflow.store.settlements import Complete
from tests.cli.verbs import Verbs, agreed
from tests.operate.spread import Spread
from tests.store.bench import arrival

NONE = "result   none: its handler gave none, or those of later tasks took its room"


async def test_ends_are_told(spread: Spread, groupflow: Verbs) -> None:
    """When a task came, began and ended, where, and its result; of a group the last ones."""
    home = spread.benches[spread.place_of("a")]
    await spread.enqueue(*(arrival(f"a{n}", "a") for n in range(4)))
    daemon = await home.daemon()
    for kept in (b'{"result":{"rows":3}}', b'{"result_error":"it is no JSON"}', b""):
        await daemon.settle(Complete(await daemon.claim_one(), 1.25, result=kept))
    async with agreed(spread):
        assert (await groupflow("task", "cancel", "a3")).exit == 0
        told = await groupflow("task", "a0", "--json")
        names = ("state", "result", "result_error", "seconds", "daemon", "attempt")
        assert [told.json[name] for name in names] == ["done", {"rows": 3}, None, 1.25, "d1", 1]
        times = [moment(told.json[name]) for name in ("enqueued_at", "began_at", "since")]
        said = (await groupflow("task", "a0")).out
        assert "came     {}\nbegan    {}\nended    {}\n".format(*times) in said
        assert 'took     1.250 s on d1\nresult   {\n           "rows": 3\n         }\n' in said
        assert "runs on" not in said
        assert "result   none: it is no JSON\n" in (await groupflow("task", "a1")).out
        assert f"{NONE}\n" in (await groupflow("task", "a2")).out
        cancelled = (await groupflow("task", "a3")).out
        assert ["ended  " in cancelled, "result" in cancelled] == [True, False]
        story = (await groupflow("why", "a", "--json")).json
        assert [each["id"] for each in story["lately"]] == ["a3", "a2", "a1", "a0"]
        assert (story["state"], story["lately"][3]["seconds"]) == ("idle", 1.25)
        lines = (await groupflow("why", "a")).out.splitlines()
        assert lines[0] == "a is idle, 0 waiting: nothing waits in it"
        assert lines[1] == "ended lately, among the last 10,000 of all groups that ended there:"
        assert [line.split("UTC  ")[1] for line in lines[2:]] == [
            "cancelled  a3  t",
            *(f"done  a{n}  t  attempt 1 took 1.250 s on d1" for n in (2, 1, 0)),
        ]
        assert len((await groupflow("why", "b")).out.splitlines()) == 1
