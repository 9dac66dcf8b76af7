"""The Python in the documents: it is the examples' own, and it runs."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from groupflow import App, Dead, Done
from groupflow.settings.model import Settings
from groupflow.testing import make_task, run
from tests.deadlines import deadline
from tests.docs.examples import DOCS, EXAMPLES, load_example, python_blocks
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


def test_what_publishing_shows_are_the_examples() -> None:
    """So that whatever the documents show is what the tests below run."""
    shown = [block for page in DOCS.glob("publishing*.md") for block in python_blocks(page)]
    files = {file.name: file.read_text() for file in EXAMPLES.glob("*.py")}
    assert sorted(shown) == sorted(files.values())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_other_documents_python_runs(document: Path) -> None:
    """Their blocks, one behind the other, as parts of one module; handlers aren't called."""
    if document.name.startswith("publishing"):
        return
    module: dict[str, Any] = {"app": App()}
    exec("from groupflow import *\nfrom groupflow.testing import *", module)
    for number, block in enumerate(python_blocks(document)):
        exec(compile(block, f"{document.name}, block {number}", "exec"), module)
    for name, value in list(module.items()):
        if name.startswith("test_"):
            asyncio.run(value())


def _run(example: str, rig: Rig) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / example, rig.rabbitmq.url, rig.queue],
        capture_output=True,
        text=True,
        timeout=deadline(),
        check=False,
    )
    return done.stdout + done.stderr


def test_publishing_examples_publish(rig: Rig) -> None:
    """Both say that there is no queue yet; with a daemon, what they publish becomes tasks."""
    assert "No queue yet" in _run("publish.py", rig)
    assert "NO_ROUTE" in _run("publish_amqp.py", rig)
    rig.config.write_text(rig.config.read_text().replace("{entity}", "{meta_obj_name}"))
    rig.start("d1", "--only", "intake")
    assert "published 1000 in order" in _run("publish.py", rig)
    published = _run("publish_amqp.py", rig).split()
    assert published[0] == "published"
    rig.until(lambda: rig.count("queued_grouped") == 1002, "the messages' tasks")
    found = orjson.loads(
        rig.call("task", published[1], "--config", str(rig.config), "--json").stdout
    )
    facts = (found["state"], found["type"], found["group"])
    assert facts == ("delayed", "import.contacts", "contact:42")


def test_what_is_published_from_frameworks(rig: Rig) -> None:
    """Each example in a process of its own, driven as by its own framework's tests."""
    rig.config.write_text(rig.config.read_text().replace("{entity}", "{meta_obj_name}"))
    rig.start("d1", "--only", "intake")
    address = {"AMQP_URL": rig.rabbitmq.url, "AMQP_QUEUE": rig.queue}
    for name, drive in DRIVES.items():
        done = subprocess.run(
            [sys.executable, "-c", f"import {name} as example\n{drive}"],
            cwd=EXAMPLES,
            env={**os.environ, **address, "CELERY_BROKER": "memory://"},
            capture_output=True,
            text=True,
            timeout=deadline(),
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
    rig.until(lambda: rig.count("queued_grouped") == 5, "the messages' tasks")


def test_the_example_for_partitions_publishes(make_rig: MakeRig) -> None:
    """As does groupflow's own publisher, by the same queue."""
    rig = make_rig(rabbitmq={"partitions": 3})
    rig.config.write_text(rig.config.read_text().replace("{entity}", "{meta_obj_name}"))
    rig.start("d1", "--only", "intake")
    assert _run("publish_partitions.py", rig).startswith("published")
    body = b'{"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": 9}'
    verb = ("publish", "--type", "import.contacts", "--config", str(rig.config))
    assert b"published 1" in rig.call(*verb, stdin=body).stdout
    rig.until(lambda: rig.count("queued_grouped") == 3, "the messages' tasks")
    said = orjson.loads(rig.call("status", "--json", "--config", str(rig.config)).stdout)
    assert said["grouped"]["groups"] == 1


def test_the_examples_message_is_routed() -> None:
    """The message that all examples publish is grouped as the documents' configuration says."""
    rule = {"app": "crm", "tenants": [42], "key": "{meta_obj_name}:{tenant_id}"}
    router = Settings(groups=[rule]).router()
    body = {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": 7}
    route = router.route(orjson.dumps(body), type="import.contacts")
    assert route.group == "contact:42"


def test_the_readmes_example_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message gets its group by its rule, and its handler does what it says."""
    text = (DOCS.parent / "README.md").read_text()
    blocks = dict(re.findall(r"^```(python|toml)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    (body,) = re.findall(r"^echo '(.*)' \|$", text, re.MULTILINE)
    (tmp_path / "handlers.py").write_text(blocks["python"])
    (tmp_path / "groupflow.toml").write_text(blocks["toml"])
    monkeypatch.chdir(tmp_path)
    command = [str(Path(sys.executable).with_name("groupflow")), "route", "--app", "handlers:app"]
    told = subprocess.run(
        [*command, "--type", "import.contacts", "--json"],
        input=body.encode(),
        capture_output=True,
        timeout=deadline(),
        check=True,
    )
    (route,) = orjson.loads(told.stdout)
    assert route["group"] == "contact:42"
    module: dict[str, Any] = {}
    exec(compile(blocks["python"], "README.md", "exec"), module)
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
