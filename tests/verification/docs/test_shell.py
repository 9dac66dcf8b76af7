"""What the documents show for a shell runs as it is pasted.

A block marked `sh` runs here; one marked `bash` is for a machine of one's own (it installs, kills,
needs a cluster), and is only parsed (`test_documents.py`). Those of pools.md: tests/pools.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupflow.servers.server import free_ports
from tests.docs.examples import DOCS, blocks, python_of
from tests.endtoend.conftest import MakeRig, make_rig
from tests.endtoend.process import Process
from tests.programs import ran

__all__ = ["make_rig"]

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
    environment = {
        **rig.environment(),
        "PATH": f"{bin_}:{rig.environment()['PATH']}",
        "GROUPFLOW_RABBITMQ__URL": rig.rabbitmq.url,
        "GROUPFLOW_RABBITMQ__QUEUE": rig.queue,
        "GROUPFLOW_REDIS__URL": rig.store.url,
        "GROUPFLOW_REDIS__NAMESPACE": rig.keys.namespace,
        "GROUPFLOW_HTTP__LISTEN": f"127.0.0.1:{port}" if has_page else "",
        "GROUPFLOW_HTTP__TOKEN": "a-token-that-is-long-enough",
        "GROUPFLOW_LOG__FORMAT": "json",
        "GROUPFLOW_WORKERS__LEASE": "60",
    }
    run = [str(bin_ / "groupflow"), "run", "--app", "handlers:app", "--name", "first"]
    daemon = Process("first", run, environment, rig.folder / "first.log", folder)
    try:
        started = ["daemon.started", "lease.begun", "intake.started"]
        for event in started + ["http.listening"] * has_page:
            daemon.wait_for(event)
        shell = {
            **environment,
            "GROUPFLOW_URL": f"http://127.0.0.1:{port}",
            "GROUPFLOW_TOKEN": environment["GROUPFLOW_HTTP__TOKEN"],
        }
        said = [_ran(block, folder, shell) for block in shells]
        for wanted in blocks(page, "text"):
            assert any(wanted in each for each in said), said
        assert daemon.stop() == 0
    finally:
        daemon.close()


def _ran(block: str, folder: Path, environment: dict[str, str]) -> str:
    done = ran("sh", "-eu", folder=folder, env=environment, stdin=block)
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout
