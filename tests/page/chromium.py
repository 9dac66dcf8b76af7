"""Debian's chromium, as the tests and the measurement of the page start it."""

from __future__ import annotations

from playwright.sync_api import Browser, Playwright

PROGRAM = "/usr/bin/chromium"
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def launch(playwright: Playwright) -> Browser:
    """Start it."""
    return playwright.chromium.launch(executable_path=PROGRAM, args=[*OPTIONS])
