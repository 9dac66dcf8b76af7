"""`groupflow pools`, `pool sync` and `work`: tasks for workers that come and ask."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from groupflow.cli.options import ConfigOption, JsonOption, print_json
from groupflow.cli.safe import say
from groupflow.core.errors import ConfigError, GroupflowError, Problem, ServerUnreachable

if TYPE_CHECKING:
    from groupflow.operate.namespace import Namespace
    from groupflow.operate.pools import PoolStatus

verbs = typer.Typer()
_pool = typer.Typer(help="Change what waits in a pool.", no_args_is_help=True)
verbs.add_typer(_pool, name="pool")

PIECE = 1024 * 1024  # bytes that are sent at a time
UPLOAD = 600.0  # seconds without a byte, or for the answer

UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="GROUPFLOW_URL",
        help="Where groupflow listens; without it: [http] listen, which then needs the file.",
    ),
]
TokenOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Holds the token; without it: GROUPFLOW_TOKEN; and without --url: [http] token.",
    ),
]


@verbs.command("pools")
def pools(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the pools: what could be claimed, who holds how much, who is silent.

    For example:

      groupflow pools

      groupflow pools --json | jq '.[] | {name, held, waited}'
    """
    from groupflow.cli.store import ask_store
    from groupflow.operate.pools import read_pools
    from groupflow.settings.load import load_settings

    names = list(load_settings(config).pools)

    async def read(namespace: Namespace) -> list[PoolStatus]:
        return await read_pools(namespace, names)

    found = ask_store(config, read)
    if as_json:
        print_json([each.as_json() for each in found])
        return
    for each in found:
        say(_line(each))
        for worker in each.workers:
            silent = ", silent" if worker.is_silent else ""
            say(f"  {worker.name}: holds {worker.held}, heard {worker.heard:.1f} s ago{silent}")
        if each.known > len(each.workers):
            say(f"  and {each.known - len(each.workers)} more, heard of since")
    if not found:
        say("no pools: [pools.NAME] sets one up")


def _line(pool: PoolStatus) -> str:
    waits = f", for {pool.waited:.1f} s" if pool.claimable else ""
    return (
        f"{pool.name}: {pool.claimable} claimable{waits}, {pool.held} held by {pool.known} workers"
    )


@_pool.command("sync")
def sync(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pool.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON Lines: id, priority, body.")],
    *,
    url: UrlOption = "",
    token_file: TokenOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make what waits in a pool equal to a list; what workers hold is left alone.

    For example:

      groupflow pool sync couriers open-deliveries.jsonl
    """
    url, token = _address_and_token(url, token_file, config)
    counts = asyncio.run(_send(f"{url.rstrip('/')}/api/pools/{quote(name)}/tasks", file, token))
    if as_json:
        print_json(counts)
    else:
        say(", ".join(f"{number} {word}" for word, number in counts.items()))


async def _send(url: str, file: Path, token: str) -> dict[str, int]:
    import httpx

    try:
        size = (await asyncio.to_thread(file.stat)).st_size
        headers = {"content-length": str(size)}
        if token:
            headers["authorization"] = f"Bearer {token}"
        async with httpx.AsyncClient(timeout=UPLOAD) as client:
            answer = await client.put(url, content=_pieces(file), headers=headers)
    except OSError as error:
        raise GroupflowError(f"{file} can't be read: {error.strerror}") from None
    except httpx.HTTPError as error:
        raise ServerUnreachable("groupflow", url, str(error) or type(error).__name__) from error
    if not answer.is_success:
        raise GroupflowError(_refusal(answer))
    counts: dict[str, int] = answer.json()
    return counts


def _refusal(answer: Any) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code}: {answer.text[:200]}"


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(file.open, "rb") as opened:
        while piece := await asyncio.to_thread(opened.read, PIECE):
            yield piece


def _address_and_token(url: str, token_file: Path | None, config: Path | None) -> tuple[str, str]:
    """Where groupflow listens, and the token to show there.

    Raises:
        ConfigError: a file can't be used.
    """
    from groupflow.settings.load import load_settings

    token = _token(token_file)
    if url:
        return url, token
    http = load_settings(config).http
    if not http.listen:
        remedy = "There is no page to ask: name one with --url."
        raise ConfigError([Problem("http.listen", "", remedy)])
    return f"http://{http.listen}", token or next(iter(http.read_tokens("http")), "")


def _token(token_file: Path | None) -> str:
    if token_file is None:
        return os.environ.get("GROUPFLOW_TOKEN", "")
    try:
        return token_file.read_text("utf-8").split()[0]
    except (OSError, IndexError, UnicodeDecodeError):
        remedy = "It holds no token that can be read."
        raise ConfigError([Problem("--token-file", str(token_file), remedy)]) from None


@verbs.command("work")
def work(
    *,
    url: UrlOption = "",
    pool: Annotated[str, typer.Option("--pool", help="The pool.")],
    command: Annotated[
        str,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Run for each task, its body on stdin; exit 0 done, 75 retry, else failure.",
        ),
    ],
    concurrency: Annotated[int, typer.Option(min=1, max=500, help="Tasks at once.")] = 1,
    name: Annotated[str, typer.Option(help="This worker's name; default: host and process.")] = "",
    token_file: TokenOption = None,
    config: ConfigOption = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for one attempt.")] = None,
    drain: Annotated[float, typer.Option(help="Seconds that a stop waits for what runs.")] = 30.0,
) -> None:
    """Pull tasks from a pool, and run a command for each; drains on SIGTERM.

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

    words = tuple(shlex.split(command))
    wrong = "Give --exec a command." if not words else what_is_wrong(words[0])
    if wrong:
        raise typer.BadParameter(wrong, param_hint="--exec")
    url, token = _address_and_token(url, token_file, config)
    configure_logging()
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
