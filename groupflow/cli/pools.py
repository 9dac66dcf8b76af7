"""`groupflow pools`, `pool sync` and `work`: tasks for workers that come and ask."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, BinaryIO
from urllib.parse import quote

import typer

from groupflow.cli.options import argument, option
from groupflow.cli.verb import Answer, Call, verb
from groupflow.core.errors import ConfigError, GroupflowError, Problem, ServerUnreachable
from groupflow.core.json_text import detail_of

if TYPE_CHECKING:
    from groupflow.operate.pools import PoolStatus

verbs = typer.Typer()
_pool = typer.Typer(help="Change what waits in a pool.", no_args_is_help=True)
verbs.add_typer(_pool, name="pool")

UPLOAD = 600.0  # seconds without a byte, or for the answer


@dataclass(frozen=True)
class AddressOptions:
    """Where groupflow listens, and which token to show there."""

    url: Annotated[
        str,
        option(
            "--url URL",
            "Where groupflow listens; without it: [http] listen, which then needs the file.",
            envvar="GROUPFLOW_URL",
        ),
    ] = ""
    token_file: Annotated[
        Path | None,
        option(
            "--token-file FILE",
            "Holds the token; without it: GROUPFLOW_TOKEN; and without --url: [http] token.",
        ),
    ] = None

    def found(self, call: Call) -> tuple[str, str]:
        """The URL and the token.

        Raises:
            ConfigError: a file can't be used.
        """
        from groupflow.pools.remote_pool import is_url

        token = _token(self.token_file)
        if self.url:
            if not is_url(self.url):
                raise typer.BadParameter(f"--url {self.url!r}: write http://HOST:PORT.")
            return self.url, token
        http = call.settings.http
        if not http.listen:
            remedy = "There is no page to ask: name one with --url."
            raise ConfigError([Problem("http.listen", "", remedy)])
        return f"http://{http.listen}", token or next(iter(http.read_tokens("http")), "")


@verb(verbs, "pools")
def pools(call: Call) -> Answer:
    """List the pools: what could be claimed, who holds how much, who is silent.

    For example:

      groupflow pools

      groupflow pools --json | jq '.[] | {name, held, waited}'
    """
    from groupflow.operate.pools import read_pools

    names = list(call.settings.pools)
    found = call.ask(lambda namespace: read_pools(namespace, names))
    lines = [*_lines(found)] or ["no pools: [pools.NAME] sets one up"]
    return Answer([each.as_json() for each in found], lines)


def _lines(found: Sequence[PoolStatus]) -> Iterator[str]:
    from groupflow.operate.reasons import counted, duration

    for pool in found:
        waits = f", for {duration(pool.waited)}" if pool.claimable else ""
        waits += f", {pool.waiting} wait for the limits of their types" if pool.waiting else ""
        held = f"{pool.held} held by {counted(pool.known, 'worker')}"
        yield f"{pool.name}: {pool.claimable} claimable{waits}, {held}"
        for worker in pool.workers:
            heard = f"{duration(worker.heard)} ago{', silent' if worker.is_silent else ''}"
            yield f"  {worker.name}: holds {worker.held}, heard {heard}"
        if pool.known > len(pool.workers):
            yield f"  and {pool.known - len(pool.workers)} more, heard of since"


@verb(_pool, "sync")
def sync(
    call: Call,
    name: Annotated[str, argument("NAME", "The pool.")],
    file: Annotated[Path, argument("FILE", "JSON Lines: id, priority, body.")],
    address: AddressOptions,
) -> Answer:
    """Make what waits in a pool equal to a list; what workers hold is left alone.

    For example:

      groupflow pool sync couriers open-deliveries.jsonl
    """
    import httpx

    url, token = address.found(call)
    url = f"{url.rstrip('/')}/api/pools/{quote(name)}/tasks"
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        with file.open("rb") as given, TemporaryFile() as kept:
            body: BinaryIO = given
            if not given.seekable():  # a pipe doesn't tell its length: it would be an empty list
                shutil.copyfileobj(given, kept)
                kept.seek(0)
                body = kept
            answer = httpx.put(url, content=body, headers=headers, timeout=UPLOAD)
    except OSError as error:
        raise GroupflowError(f"{file} can't be read: {error.strerror}") from None
    except httpx.HTTPError as error:
        cause = str(error) or type(error).__name__
        setting = "--url" if address.url else "http.listen"
        raise ServerUnreachable("groupflow", url, cause, setting) from error
    if not answer.is_success:
        raise GroupflowError(detail_of(answer.text) or f"{url} answers {answer.status_code}")
    try:
        counts: dict[str, int] = answer.json()
        if "added" not in counts:
            raise ValueError
    except (ValueError, TypeError):
        raise GroupflowError(f"{url} is no groupflow: {answer.text[:80]!a}") from None
    return Answer(counts, [", ".join(f"{number} {word}" for word, number in counts.items())])


def _token(token_file: Path | None) -> str:
    from groupflow.settings.types import check_token

    where = ("GROUPFLOW_TOKEN", "") if token_file is None else ("--token-file", str(token_file))
    try:
        if token_file is None:
            token = os.environ.get("GROUPFLOW_TOKEN", "")
        else:
            token = token_file.read_text("utf-8").split()[0]
        if token:
            check_token(token)
    except (OSError, IndexError, UnicodeDecodeError):
        raise ConfigError([Problem(*where, "It holds no token that can be read.")]) from None
    except ValueError as error:
        raise ConfigError([Problem(*where, str(error))]) from None
    return token


@verb(verbs, "work", has_json=False)
def work(
    call: Call,
    address: AddressOptions,
    *,
    pool: Annotated[str, option("--pool NAME", "The pool.")],
    command: Annotated[
        str,
        option(
            "--exec CMD",
            "Run for each task, its body on stdin; exit 0 done, 75 retry, else failure.",
        ),
    ],
    concurrency: Annotated[int, option("--concurrency N", "Tasks at once.", min=1, max=500)] = 1,
    name: Annotated[
        str, option("--name NAME", "This worker's name; default: host and process.")
    ] = "",
    timeout: Annotated[float | None, option("--timeout N", "Seconds for one attempt.")] = None,
    drain: Annotated[float, option("--drain N", "Seconds that a stop waits for what runs.")] = 30.0,
) -> None:
    """Pull tasks from a pool, and run a command for each; drains on SIGTERM.

    It logs in words; with GROUPFLOW_LOG__FORMAT=json as JSON.

    For example:

      groupflow work --url http://groupflow:9464 --pool couriers --exec ./deliver --concurrency 4
    """
    from groupflow.core.outcome import Dead, Outcome, Retry
    from groupflow.core.task import Task
    from groupflow.flow.exec_handlers import ExecRunner, what_is_wrong
    from groupflow.flow.handling import Failed
    from groupflow.ops.logs import configure_logging
    from groupflow.remote import Worker
    from groupflow.settings.rules import HandlerRule

    try:
        words = tuple(shlex.split(command))
        wrong = what_is_wrong(words[0]) if words else "Give --exec a command."
    except ValueError as error:
        wrong = f"Its quotes can't be read: {error}."
    if wrong:
        raise typer.BadParameter(wrong, param_hint="--exec")
    url, token = address.found(call)
    configure_logging(format=os.environ.get("GROUPFLOW_LOG__FORMAT", "console"))
    runner = ExecRunner(HandlerRule(exec=words), words)

    async def handle(task: Task) -> Outcome:
        try:
            async with asyncio.timeout(timeout):
                outcome = await runner.handle(task)
        except TimeoutError:
            return Retry(reason=f"it took over {timeout:g} s")
        if not isinstance(outcome, Failed):
            return outcome
        reason = f"{outcome.error}: {outcome.message}"
        return Dead(reason) if outcome.is_final else Retry(reason=reason)

    worker = Worker(url, pool, handle, token=token, name=name, concurrency=concurrency, drain=drain)
    worker.run_forever()
