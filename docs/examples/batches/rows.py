"""Rows into PostgreSQL, a hundred of a group with one statement.

    CREATE TABLE imported (task TEXT PRIMARY KEY, owner TEXT NOT NULL, body TEXT NOT NULL,
                           place BIGSERIAL);

A crash may run a batch again: the task's id is the key, and what is there already stays.

Run it with the database's URL in the environment, and `batch = 100` in the rule of its groups:

    groupflow run --app rows:app
"""

import os
from collections.abc import AsyncIterator, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from groupflow import App, Task

app = App()
INSERT = text(
    "INSERT INTO imported (task, owner, body) "
    "SELECT * FROM unnest("
    "CAST(:tasks AS TEXT[]), CAST(:owners AS TEXT[]), CAST(:bodies AS TEXT[])) "
    "ON CONFLICT DO NOTHING"
)


@app.lifespan
async def connect(app: App) -> AsyncIterator[None]:
    """A pool of connections for as long as the daemon lives."""
    engine = create_async_engine(os.environ["ROWS_DATABASE"], pool_size=16)
    app.state["engine"] = engine
    yield
    await engine.dispose()


@app.batch_handler("import.rows", size=100)
async def import_rows(tasks: Sequence[Task]) -> None:
    """Insert the rows of one group, in the order in which they came."""
    rows = {
        "tasks": [task.id for task in tasks],
        "owners": [task.group for task in tasks],
        "bodies": [task.body.decode() for task in tasks],
    }
    async with app.state["engine"].begin() as connection:
        await connection.execute(INSERT, rows)
