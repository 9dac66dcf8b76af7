"""The documents' examples of publishers, in four languages and in Python's frameworks."""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.docs.examples import EXAMPLES, LANGUAGES
from tests.endtoend.conftest import MakeRig
from tests.endtoend.rig import Rig
from tests.programs import ran

# What a person does with each of them, once the module is imported.
POST = '.post("/contacts/7/import", json=[{"name": "Ada"}])'
DRIVES = {
    "publish_fastapi": f"""
from fastapi.testclient import TestClient
with TestClient(example.app) as client:
    answer = client{POST}
    assert (answer.status_code, set(answer.json())) == (202, {{"task"}}), answer.text
""",
    "publish_flask": f"""
answer = example.app.test_client(){POST}
assert (answer.status_code, set(answer.json)) == (202, {{"task"}}), answer.text
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


def _run(*command: str | Path, **variables: str) -> str:
    go = {"GOPATH": "/usr/share/gocode", "GO111MODULE": "off"}
    done = ran(*command, folder=EXAMPLES, env={**os.environ, **go, **variables})
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
    queued = rig.ask("tasks", "queued", "--all")
    found = {task["id"]: (task["type"], task["group"]) for task in queued}
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
    assert rig.ask("status")["grouped"]["groups"] == 1
