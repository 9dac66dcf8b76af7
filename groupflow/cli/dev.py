"""`groupflow dev`: the first ten minutes with handlers of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from groupflow.cli.options import ConfigOption

verbs = typer.Typer()


@verbs.command("dev")
def dev(
    *,
    app: Annotated[
        str,
        typer.Option("--app", metavar="MODULE:ATTR", help="The handlers, such as handlers:app."),
    ],
    config: ConfigOption = None,
    page: Annotated[
        bool,
        typer.Option("--page/--no-page", help="Open the page where there is a browser."),
    ] = True,
) -> None:
    """Run an application on private servers, anew with each save, a line for each task.

    Needs no configuration and no server that runs: RabbitMQ and Redis are started privately and
    are gone at the end, with all that was in them. Rules are taken from groupflow.toml where there
    is one; its servers and its page's address are not.

    For example:

      groupflow dev --app handlers:app
    """
    from groupflow.dev.session import has_display, run_dev

    run_dev(app, config, shows_page=page and has_display())
