"""`groupflow doctor`: is what groupflow stands on fit for it, and what is to be done?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from groupflow.cli.exits import Exit
from groupflow.cli.options import ConfigOption, JsonOption, print_json
from groupflow.cli.safe import say
from groupflow.core.masking import mask_secrets

if TYPE_CHECKING:
    from groupflow.core.checkup import Check

verbs = typer.Typer()

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


@verbs.command("doctor")
def doctor(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Examine Redis and RabbitMQ: versions, durability, memory, clocks, rights, the queue.

    And whether others may write the configuration, or read its secrets.

    Nothing is changed. Exit 0: all is well, or there are warnings; 1: something fails; 69: a server
    can't be reached; 78: the configuration can't be used.

    For example:

      groupflow doctor --config groupflow.toml

      groupflow doctor --json | jq '.checks[] | select(.verdict != "ok")'
    """
    from groupflow.doctor.examination import examine
    from groupflow.settings.load import find_sources, load_settings

    findings = asyncio.run(examine(load_settings(config), find_sources(config)))
    if as_json:
        checks = [_masked(check) for check in findings.checks]
        print_json({"verdict": findings.worst, "checks": checks})
    else:
        for check in findings.checks:
            _print(check)
    if findings.unreachable:
        raise typer.Exit(Exit.UNAVAILABLE)
    if findings.worst == "fail":
        raise typer.Exit(Exit.FAILED)


def _masked(check: Check) -> dict[str, str]:
    return {name: mask_secrets(text) for name, text in check.as_json().items()}


def _print(check: Check) -> None:
    masked = _masked(check)
    verdict = typer.style(f"{check.verdict:4}", fg=_STYLES[check.verdict])
    say(f"  {masked['name']:25} {masked['found']}", lead=verdict)
    if masked["remedy"]:
        say(f"{'':32}→ {masked['remedy']}")
