"""The rows are there, well-formed, and published in the order in which things happened."""

import json
from datetime import UTC, datetime

from groupflow.demo.rows import AIRLINES, FLIGHTS, PLANES, STATIONS, departed_at, load_tasks


def test_each_row_is_a_task_behind_what_it_needs() -> None:
    """An aeroplane before its flights, and these in time order, in one group; weather alone."""
    last: dict[str | None, datetime] = {}
    tasks = load_tasks()
    for number, task in enumerate(tasks):
        body = json.loads(task.body)
        row = body["row"]
        assert (task.number, body["tenant_id"], body["type"]) == (number, task.tenant, task.type)
        assert len(row) >= 10
        assert all(isinstance(text, str) and text for text in row.values())
        grouped = f"{row.get('tailnum')}:{task.tenant}" if task.tenant in AIRLINES else None
        assert task.group == grouped
        if task.type == PLANES:
            assert task.group not in last
            last[task.group] = datetime.min.replace(tzinfo=UTC)
        elif task.type == FLIGHTS:
            assert last[task.group] < departed_at(row)
            last[task.group] = departed_at(row)
    assert {task.tenant for task in tasks} == AIRLINES.keys() | STATIONS.keys()
