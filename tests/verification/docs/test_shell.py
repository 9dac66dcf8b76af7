"""What the documents show for a shell runs as it is pasted.

A block marked `sh` runs here; one marked `bash` is for a machine of one's own (it installs, kills,
needs a cluster), and is only parsed (`test_documents.py`). Those of pools.md: tests/pools.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from groupflow.servers.server import free_ports
from tests.docs.examples import DOCS, blocks, python_of
from tests.endtoend.conftest import MakeRig, make_rig
from tests.endtoend.process import REPOSITORY, Process
from tests.page.served import TOKEN
from tests.pools.shop import COURIER
from tests.pools.test_remote import World, world
from tests.programs import must

__all__ = ["make_rig", "world"]

PAGES = [page for page in sorted(DOCS.glob("*.md")) if blocks(page, "sh") and page.stem != "pools"]
HANDLERS = """
from groupflow import App

app = App()


@app.handler("import.contacts")
async def import_contacts(task): ...
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_pages_commands_run(page: Path, make_rig: MakeRig) -> None:
    """Beside a daemon that has the page's settings and handlers."""
    rig = make_rig()
    folder = rig.folder / "first"
    folder.mkdir()
    code = "\n".join(python_of(page))
    (folder / "handlers.py").write_text(code if "App()" in code else HANDLERS)
    shown = blocks(page, "toml")
    (folder / "groupflow.toml").write_text(shown[0] if shown and "/etc/" not in shown[0] else "")
    shells = blocks(page, "sh")
    has_page = any("$GROUPFLOW_URL" in block for block in shells)
    (port,) = free_ports(1)
    bin_ = Path(sys.executable).parent
    settings = {
        "RABBITMQ__URL": rig.rabbitmq.url, "RABBITMQ__QUEUE": rig.queue,
        "REDIS__URL": rig.store.url, "REDIS__NAMESPACE": rig.keys.namespace,
        "HTTP__LISTEN": f"127.0.0.1:{port}" if has_page else "",
        "HTTP__TOKEN": "a-token-that-is-long-enough", "LOG__FORMAT": "json", "WORKERS__LEASE": "60",
    }  # fmt: skip
    environment = {f"GROUPFLOW_{name}": value for name, value in settings.items()}
    environment |= rig.environment() | {"PATH": f"{bin_}:{rig.environment()['PATH']}"}
    run = [str(bin_ / "groupflow"), "run", "--app", "handlers:app", "--name", "first"]
    daemon = Process("first", run, environment, rig.folder / "first.log", folder)
    try:
        started = ["daemon.started", "lease.begun", "intake.started"]
        for event in started + ["http.listening"] * has_page:
            daemon.wait_for(event)
        shell = environment | {"GROUPFLOW_URL": f"http://127.0.0.1:{port}"}
        shell["GROUPFLOW_TOKEN"] = environment["GROUPFLOW_HTTP__TOKEN"]
        said = [must("sh", "-eu", folder=folder, env=shell, stdin=block) for block in shells]
        for wanted in blocks(page, "text"):
            assert any(wanted in each for each in said), said
        assert daemon.stop() == 0
    finally:
        daemon.close()


# Workers of pools as docs/pools.md shows them, and one made from the description of the API.


OF_POOLS = {
    "sh": ("example.sh", ["sh", "-eu"]),
    "js": ("example.mjs", ["node"]),
    "go": ("example.go", ["go", "run"]),
}


@pytest.mark.parametrize("language", OF_POOLS)
def test_the_examples_run_as_written(world: World, language: str) -> None:
    """Each example of docs/pools.md claims a task and settles it."""
    docs = REPOSITORY / "docs"
    name, program = OF_POOLS[language]
    file = world.rig.folder / name
    page = (docs / "pools.md").read_text()
    shown = page.partition(f"```{language}\n")[2].partition("```")[0]
    file.write_text(shown or (docs / "examples" / "pools" / "gopher.go").read_text())
    before = world.rig.count("done")
    world.publish(f"by-{language}")
    environment = {"PATH": os.environ["PATH"], "HOME": str(world.rig.folder)}
    environment |= {"GROUPFLOW_URL": world.url, "GROUPFLOW_TOKEN": COURIER}
    assert "accepted" in must(*program, file, folder=world.rig.folder, env=environment)
    world.wait_for(before + 1)


def test_a_generated_client_settles_a_task(world: World, tmp_path: Path, monkeypatch: Any) -> None:
    """One that is made of what the server says of its API; it fills the pool, claims, settles."""
    description, config = tmp_path / "openapi.json", tmp_path / "config.yaml"
    description.write_bytes(world.http.get("/api/openapi.json").content)
    config.write_text("content_type_overrides: {application/x-ndjson: application/octet-stream}")
    making = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    making += ["--path", str(description), "--config", str(config)]
    making += ["--output-path", str(tmp_path / "couriers")]
    made = must(*making)
    assert "will not be generated" not in made, made
    monkeypatch.syspath_prepend(tmp_path)

    def call(name: str, *words: str, body: Any) -> Any:
        sync = import_module(f"couriers.api.default.{name}").sync
        return sync("couriers", *words, client=client, body=body)

    models, worker = import_module("couriers.models"), "post_pools_pool_workers_worker"
    client = import_module("couriers.client").AuthenticatedClient(base_url=world.url, token=TOKEN)
    with client:
        row = import_module("couriers.types").File(BytesIO(b'{"id": "listed", "body": {"n": 1}}'))
        assert call("put_pools_pool_tasks", body=row).added == 1
        [task] = call(f"{worker}_claims", "cleo", body=models.Wanted(limit=1)).tasks
        assert (task.id, task.body) == ("listed", {"n": 1})
        told = models.Settled(task.id, task.fence, models.SettledOutcome.DONE)
        [verdict] = call(f"{worker}_settlements", "cleo", body=[told])
    assert (verdict.id, verdict.verdict) == ("listed", "accepted")
