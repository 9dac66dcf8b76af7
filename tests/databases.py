"""Private databases for tests of scans, run as the launcher runs other servers."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from groupflow.servers.process import ServerFailed
from groupflow.servers.server import MissingServer, PrivateServer, ask
from tests.deadlines import deadline


class Database(PrivateServer):
    """A server that refuses to run as root: then it runs as the user of its package."""

    ready_within: ClassVar[float] = 60.0
    taken_marks: ClassVar[Sequence[str]] = ("Address already in use",)
    user: ClassVar[str]

    def __init__(self, _: Path) -> None:
        # Its user has to come to it, which it can't below pytest's folders.
        folder = Path(tempfile.mkdtemp(prefix="groupflow-db-"))
        super().__init__(folder, scratch=folder)
        self.data = folder / "data"
        if os.geteuid() == 0:
            owner = pwd.getpwnam(self.user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)

    def as_user(self, *command: str) -> list[str]:
        """A command line that runs as that user."""
        if os.geteuid() != 0:
            return list(command)
        ids = (f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups")
        return ["setpriv", *ids, *command]

    def make_data(self, *command: str) -> None:
        """Run what makes the data folder, once."""
        if not self.data.exists():
            words = self.as_user(*command)
            done = subprocess.run(
                words, cwd="/", capture_output=True, check=False, timeout=2 * deadline()
            )
            if done.returncode:
                raise ServerFailed((done.stdout + done.stderr).decode(errors="replace")[-2000:])

    async def stop(self) -> None:
        """Stop it, and remove all that it wrote."""
        await super().stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgres(Database):
    """PostgreSQL from Debian's package."""

    name: ClassVar[str] = "PostgreSQL"
    programs: ClassVar[Sequence[str]] = ("postgresql",)
    user: ClassVar[str] = "postgres"

    @classmethod
    def binary(cls) -> str:
        """The newest version's program, which Debian keeps off PATH."""
        found = list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not found:
            raise MissingServer(cls.programs)
        return str(max(found, key=lambda path: int(path.parts[-3])))

    @property
    def url(self) -> str:
        """What SQLAlchemy connects with."""
        return f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/postgres"

    def command(self) -> list[str]:
        """The program and its arguments."""
        self.make_data(
            str(Path(self.binary()).with_name("initdb")),
            *("-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"),
        )
        return self.as_user(
            *(self.binary(), "-D", str(self.data), "-p", str(self.port), "-h", "127.0.0.1"),
            *("-k", "", "-N", "200", "-c", "synchronous_commit=off"),
        )

    async def answers(self, pid: int) -> bool:
        """Whether it says of itself that it is ready."""
        said = self.data / "postmaster.pid"
        lines = said.read_text().splitlines() or [""]  # it is written line by line
        return lines[0] == str(pid) and lines[-1].strip() == "ready"


class MariaDb(Database):
    """MariaDB from Debian's package."""

    name: ClassVar[str] = "MariaDB"
    programs: ClassVar[Sequence[str]] = ("/usr/sbin/mariadbd", "mariadb-server")
    user: ClassVar[str] = "mysql"

    @property
    def url(self) -> str:
        """What SQLAlchemy connects with."""
        return f"mariadb+asyncmy://tester:secret@127.0.0.1:{self.port}/scans?charset=utf8mb4"

    def command(self) -> list[str]:
        """The program and its arguments."""
        self.make_data(
            *("mariadb-install-db", "--no-defaults", f"--datadir={self.data}", "--skip-test-db"),
            "--auth-root-authentication-method=normal",
        )
        init = self.folder / "init.sql"
        init.write_text(
            "CREATE DATABASE IF NOT EXISTS scans;\n"
            "CREATE USER IF NOT EXISTS tester@'127.0.0.1' IDENTIFIED BY 'secret';\n"
            "GRANT ALL ON scans.* TO tester@'127.0.0.1';\n"
        )
        return self.as_user(
            *(self.binary(), "--no-defaults", f"--datadir={self.data}", f"--port={self.port}"),
            *("--bind-address=127.0.0.1", f"--socket={self.folder}/socket"),
            *("--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2"),
            *("--innodb-buffer-pool-size=32M", f"--init-file={init}"),
        )

    async def answers(self, pid: int) -> bool:
        """Whether it greets: that it does once it serves."""
        greeting = await ask(self.port, b"", until=b"MariaDB")
        return b"MariaDB" in greeting
