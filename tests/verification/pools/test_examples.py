"""Workers of pools as docs/pools.md shows them, and one made from the description of the API."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.endtoend.process import REPOSITORY
from tests.page.served import TOKEN
from tests.pools.shop import COURIER
from tests.pools.test_remote import World, world
from tests.programs import ran

__all__ = ["world"]

EXAMPLES = {
    "sh": ("example.sh", ["sh", "-eu"]),
    "js": ("example.mjs", ["node"]),
    "go": ("example.go", ["go", "run"]),
}


@pytest.mark.parametrize("language", EXAMPLES)
def test_the_examples_run_as_written(world: World, language: str) -> None:
    """Each example of docs/pools.md claims a task and settles it."""
    docs = REPOSITORY / "docs"
    name, program = EXAMPLES[language]
    file = world.rig.folder / name
    page = (docs / "pools.md").read_text()
    shown = page.partition(f"```{language}\n")[2].partition("```")[0]
    file.write_text(shown or (docs / "examples" / "pools" / "gopher.go").read_text())
    before = world.rig.count("done")
    world.publish(f"by-{language}")
    environment = {"PATH": os.environ["PATH"], "HOME": str(world.rig.folder)}
    environment |= {"GROUPFLOW_URL": world.url, "GROUPFLOW_TOKEN": COURIER}
    done = ran(*program, file, folder=world.rig.folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert "accepted" in done.stdout
    world.wait_for(before + 1)


def test_a_generated_client_settles_a_task(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is made of what the server says of its API; it fills the pool, claims, settles."""
    description, config = tmp_path / "openapi.json", tmp_path / "config.yaml"
    description.write_bytes(world.http.get("/api/openapi.json").content)
    config.write_text("content_type_overrides: {application/x-ndjson: application/octet-stream}")
    making = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    making += ["--path", str(description), "--config", str(config)]
    making += ["--output-path", str(tmp_path / "couriers")]
    made = ran(*making)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "will not be generated" not in made.stdout, made.stdout
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
