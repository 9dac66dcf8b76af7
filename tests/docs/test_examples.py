"""What the documents show runs as it is pasted: Python, TOML, and publishers in four languages."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from groupflow import Advance, App, Dead, Done, Retry
from groupflow.cli import app as command_line
from groupflow.flow.lines import outcomes_in
from groupflow.testing import make_task, run
from tests.deadlines import deadline
from tests.docs.examples import DOCS, EXAMPLES, LANGUAGES, blocks, load_example, python_of
from tests.endtoend.conftest import MakeRig, make_rig, rig
from tests.endtoend.rig import Rig

__all__ = ["make_rig", "rig"]

# What a person does with each of them, once the module is imported.
DRIVES = {
    "publish_fastapi": """
from fastapi.testclient import TestClient
with TestClient(example.app) as client:
    answer = client.post("/contacts/7/import", json=[{"name": "Ada"}])
    assert (answer.status_code, set(answer.json())) == (202, {"task"}), answer.text
""",
    "publish_flask": """
answer = example.app.test_client().post("/contacts/7/import", json=[{"name": "Ada"}])
assert (answer.status_code, set(answer.json)) == (202, {"task"}), answer.text
""",
    "publish_django": """
from django.test import Client
answer = Client().post("/contacts/7/import")
assert (answer.status_code, answer.json()) == (202, {"task": "contact-7"}), answer.content
""",
    "publish_celery": """
example.app.conf.update(task_always_eager=True, task_eager_propagates=True)
ids = example.import_contacts.delay([{"id": 1}, {"id": 2}]).get()
assert len(ids) == 2, ids
""",
}
DOCUMENTS = (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))
WITH_TOML = [document for document in DOCUMENTS if blocks(document, "toml")]


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
    (lines,) = blocks(DOCS / "handlers.md", "json")
    *ended, stage = lines.splitlines()
    told = [outcomes_in(line.encode(), 1, Done())[0] for line in ended]
    assert told == [Done(), Retry(30, "too many", "group"), Dead("no such tenant")]
    assert outcomes_in(stage.encode(), 1, Done()) == [Advance("transcode", {"rate": 44100})]


def _run(*command: str | Path, **variables: str) -> str:
    go = {"GOPATH": "/usr/share/gocode", "GO111MODULE": "off"}
    done = subprocess.run(
        command,
        cwd=EXAMPLES,
        env={**os.environ, **go, **variables},
        capture_output=True,
        text=True,
        timeout=deadline(),
        check=False,
    )
    return done.stdout + done.stderr


def _run_all(clients: dict[str, list[str | Path]], *address: str) -> list[str]:
    """Each client's word; all at once, since each takes a while to start."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda client: _run(*client, *address), clients.values()))


def _ids(said: list[str]) -> list[str]:
    found = [re.search(r"^published (\S+)$", each, re.MULTILINE) for each in said]
    assert all(found), said
    return [each[1] for each in found if each]


def _take_in(rig: Rig) -> None:
    """A daemon takes in, by the documents' rule."""
    rig.config.write_text(rig.config.read_text().replace("{entity}", "{meta_obj_name}"))
    rig.start("d1", "--only", "intake")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str | Path]]:
    """How each plain client of AMQP is run."""
    folder = tmp_path_factory.mktemp("clients")
    (folder / "node_modules").symlink_to(LANGUAGES / "node_modules")
    (folder / "publish.mjs").symlink_to(EXAMPLES / "publish.mjs")
    said = _run("go", "build", "-o", folder / "gopher", EXAMPLES / "publish.go")
    assert not said, said
    jars = ":".join(f"/usr/share/java/{jar}.jar" for jar in ("amqp-client", "slf4j-api"))
    _run("javac", "-cp", jars, "-d", folder, EXAMPLES / "Publish.java")
    return {
        "python": [sys.executable, EXAMPLES / "publish_amqp.py"],
        "node": ["node", "--preserve-symlinks-main", folder / "publish.mjs"],
        "go": [folder / "gopher"],
        "java": ["java", "-cp", f"{jars}:{folder}", "Publish"],
    }


def test_publishing_examples_publish(rig: Rig, clients: dict[str, list[str | Path]]) -> None:
    """All say that there is no queue yet; with a daemon, what they publish becomes tasks."""
    # Of a virtual host that ends with a slash, Java makes one without a name.
    plain = (rig.rabbitmq.url.rstrip("/") + "/%2F", "", rig.queue)
    ours = (sys.executable, EXAMPLES / "publish.py", rig.rabbitmq.url, rig.queue)
    assert "No queue yet" in _run(*ours)
    for said in _run_all(clients, *plain):
        assert re.search("NO_ROUTE|no such queue", said), said
    _take_in(rig)
    assert "published 1000 in order" in _run(*ours)
    ids = _ids(_run_all(clients, *plain))
    rig.until(lambda: rig.count("queued_grouped") == 1001 + len(ids), "the messages' tasks")
    listed = rig.call("tasks", "queued", "--all", "--json", "--config", str(rig.config)).stdout
    found = {task["id"]: (task["type"], task["group"]) for task in orjson.loads(listed)}
    assert {found[id_] for id_ in ids} == {("import.contacts", "contact:42")}


def test_what_is_published_from_frameworks(rig: Rig) -> None:
    """Each example in a process of its own, driven as by its own framework's tests."""
    _take_in(rig)
    address = {"AMQP_URL": rig.rabbitmq.url, "AMQP_QUEUE": rig.queue}
    for name, drive in DRIVES.items():
        code = f"import {name} as example\n{drive}\nprint('all is well')"
        said = _run(sys.executable, "-c", code, CELERY_BROKER="memory://", **address)
        assert "all is well" in said, f"{name}: {said}"
    rig.until(lambda: rig.count("queued_grouped") == 5, "the messages' tasks")


def test_the_examples_publish_to_partitions(
    make_rig: MakeRig, clients: dict[str, list[str | Path]]
) -> None:
    """As does groupflow's own publisher, by the same queue."""
    rig = make_rig(rabbitmq={"partitions": 3})
    _take_in(rig)
    address = (rig.rabbitmq.url.rstrip("/") + "/%2F", rig.queue, "contact:42")
    ids = _ids(_run_all(clients, *address))
    body = b'{"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": 9}'
    verb = ("publish", "--type", "import.contacts", "--config", str(rig.config))
    assert b"published 1" in rig.call(*verb, stdin=body).stdout
    rig.until(lambda: rig.count("queued_grouped") == 1 + len(ids), "the messages' tasks")
    said = orjson.loads(rig.call("status", "--json", "--config", str(rig.config)).stdout)
    assert said["grouped"]["groups"] == 1


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
