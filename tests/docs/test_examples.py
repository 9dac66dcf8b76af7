"""What the documents show runs as it is pasted: Python and TOML.

The long tests run publishers in four languages, and shells.
"""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from typer.testing import CliRunner

from groupflow import Advance, App, Dead, Done, Retry, Task
from groupflow.cli import app as command_line
from groupflow.flow.batches import outcomes_in
from groupflow.testing import Failed, make_task, run
from tests.docs.examples import DOCS, blocks, load_example, python_of
from tests.endtoend.conftest import make_rig, rig

__all__ = ["make_rig", "rig"]

DOCUMENTS = (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))
WITH_TOML = [document for document in DOCUMENTS if blocks(document, "toml")]


@pytest.fixture(autouse=True)
def reports(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Sentry, in whose place this is, is told."""
    reports: list[Any] = []
    scope = SimpleNamespace(set_tags=reports.append)
    sentry = SimpleNamespace(
        isolation_scope=lambda: nullcontext(scope),
        capture_exception=lambda error: reports.append(type(error).__name__),
    )
    monkeypatch.setitem(sys.modules, "sentry_sdk", sentry)
    return reports


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_a_documents_python_runs(document: Path) -> None:
    """Its blocks, one behind the other, as parts of one module; handlers aren't called.

    Blocks that are parts of an example's file run with it, below.
    """
    module: dict[str, Any] = {"app": App()}
    exec("from groupflow import *\nfrom groupflow.testing import *", module)
    for number, block in enumerate(python_of(document)):
        exec(compile(block, f"{document.name}, block {number}", "exec"), module)
    for name, value in list(module.items()):
        if name.startswith("test_"):
            asyncio.run(value())


@pytest.mark.parametrize("document", WITH_TOML, ids=lambda file: file.name)
def test_a_documents_settings_can_be_used(document: Path, tmp_path: Path) -> None:
    """Each block by itself; files that it names would be there."""
    config = tmp_path / "groupflow.toml"
    for shown in blocks(document, "toml"):
        block = shown
        secrets = re.findall(r'"(/etc/groupflow/[\w-]+)"', shown)
        for number, secret in enumerate(secrets):
            file = tmp_path / Path(secret).name
            file.write_text(f"a-token-that-is-long-enough-{number}\n")
            file.chmod(0o600)
            block = block.replace(secret, str(file))
        config.write_text(block)
        told = CliRunner().invoke(command_line, ["check-config", "--config", str(config)])
        assert told.exit_code == 0, f"{block}\n{told.output}"


def test_a_batchs_lines_are_outcomes() -> None:
    more, lines = blocks(DOCS / "handlers.md", "json")
    done = outcomes_in(more.encode(), 1, Done(), has_result=True)[0]
    assert isinstance(done, Done)
    assert (done.result, done.then[0].body) == ({"rows": 3}, b'{"to":"ada"}')
    *ended, stage = lines.splitlines()
    told = [outcomes_in(line.encode(), 1, Done())[0] for line in ended]
    assert told == [Done(), Retry(30, "too many", "group"), Dead("no such tenant")]
    assert outcomes_in(stage.encode(), 1, Done()) == [Advance("transcode", {"rate": 44100})]


async def test_the_middleware(tmp_path: Path, reports: list[Any]) -> None:
    """What a task has written is committed where it is done, and not otherwise."""
    module: dict[str, Any] = {}
    exec("\n".join(blocks(DOCS / "middleware.md", "python")), module)
    app: App = module["app"]
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/crm.db")
    module["sessions"].configure(bind=engine)
    async with engine.begin() as database:
        await database.execute(text("CREATE TABLE contact (id INTEGER PRIMARY KEY, name TEXT)"))

    @app.handler("busy")
    async def busy(task: Task) -> Retry:
        await module["import_contact"](task)
        return Retry()

    ended = []
    with capture_logs(processors=[merge_contextvars]) as logs:
        for type_, id_ in (("import.contact", 1), ("import.contact", 1), ("busy", 2)):
            task = make_task(type_, {"id": id_, "name": "Ada"}, id=f"{type_}-{id_}")
            ended.append(type(await run(app, task)))
    async with engine.connect() as database:
        assert [*await database.execute(text("SELECT id FROM contact"))] == [(1,)]
    await engine.dispose()
    assert ended == [Done, Failed, Retry]
    ids = ["import.contact-1", "import.contact-1", "busy-2"]
    assert [(each["event"], each["task"]) for each in logs] == [
        ("attempt.ended", id_) for id_ in ids
    ]
    tags: list[Any] = [{"task": id_, "group": None, "attempt": 1} for id_ in ids]
    assert reports == [*tags[:2], "IntegrityError", tags[2]]


def test_the_readmes_example_runs_as_it_stands(tmp_path: Path) -> None:
    """Its message gets its group by its rule, and its handler does what it says."""
    readme = DOCS.parent / "README.md"
    (code,), (rule,) = (blocks(readme, each) for each in ("python", "toml"))
    (body,) = re.findall(r"^echo '(.*)' \|$", readme.read_text(), re.MULTILINE)
    (tmp_path / "groupflow.toml").write_text(rule)
    words = ["route", "--config", str(tmp_path / "groupflow.toml"), "--type", "import.contacts"]
    told = CliRunner().invoke(command_line, [*words, "--json"], input=body)
    assert orjson.loads(told.stdout)[0]["group"] == "contact:42"
    module: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), module)
    for rows, outcome in (([{"name": "Ada"}], Done), ([{}], Dead)):
        task = make_task("import.contacts", {"rows": rows})
        assert isinstance(asyncio.run(run(module["app"], task)), outcome)


def test_the_guarded_write(tmp_path: Path) -> None:
    """A later run may write, the same run again too; an earlier one may not."""
    example: Any = load_example("fenced_write")
    database = example.connect(str(tmp_path / "contacts.db"))
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    written = [
        example.save(database, {"id": 7, "name": name}, fence)
        for name, fence in (("a", 5), ("b", 5), ("c", 9), ("late", 8), ("d", 10))
    ]
    assert written == [True, True, True, False, True]
    assert database.execute("SELECT name, fence FROM contact").fetchall() == [("d", 10)]
    database.close()
