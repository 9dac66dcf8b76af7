"""What a person does on the page, in a browser, and what the browser then says."""

from __future__ import annotations

from collections.abc import Mapping
from re import Pattern
from urllib.parse import urlencode

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, expect

from tests.page.world import TOKEN

PROGRAM = "/usr/bin/chromium"
OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


def launch(playwright: Playwright) -> Browser:
    """Start it."""
    return playwright.chromium.launch(executable_path=PROGRAM, args=[*OPTIONS])


def watch(page: Page, said: list[str]) -> None:
    """Note each error, warning and dialog of a tab."""

    def on_console(message: ConsoleMessage) -> None:
        # The browser itself reports what the page then tells in words: that something isn't there,
        # that a limit can't be.
        where = message.location["url"]
        is_answer = "404" in message.text and "/api/" in where
        is_answer = is_answer or ("400" in message.text and where.endswith("/api/limit"))
        if message.type in ("error", "warning") and not is_answer:
            said.append(f"{message.text} {where}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))


def at(page: Page, view: str, **params: str) -> None:
    """Go to a view as its link would."""
    query = f"?{urlencode(params)}" if params else ""
    page.evaluate("hash => { location.hash = hash }", f"#/{view}{query}")


def press(page: Page, name: str | Pattern[str], sure: str = "") -> None:
    """Press a button, and the one of the dialog that asks whether it is meant."""
    page.get_by_role("button", name=name).click()
    if sure:
        page.get_by_role("dialog").get_by_role("button", name=sure).click()


def follow(page: Page, name: str | Pattern[str]) -> None:
    """Follow a link, the first of that name."""
    page.get_by_role("link", name=name, exact=isinstance(name, str)).first.click()


def fill(page: Page, fields: Mapping[str, str], name: str) -> None:
    """Fill in a form, and send it by its button."""
    for label, text in fields.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_role("button", name=name, exact=True).click()


def shows(page: Page, *texts: str | Pattern[str]) -> None:
    """Wait until each of these can be seen."""
    for text in texts:
        expect(page.get_by_text(text).first).to_be_visible()


def allow(page: Page, name: str = "the browser") -> None:
    """Enter the token."""
    press(page, "Read-only")
    enter_token(page, name)


def enter_token(page: Page, name: str) -> None:
    """Fill in the dialog that asks for the token."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Token").fill(TOKEN)
    dialog.get_by_label("Your name").fill(name)
    dialog.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("button", name="May act")).to_be_visible()


LISTS = (
    *("overview", "groups", "tasks", "dead", "types", "schedules", "scans", "pools", "limits"),
    *("partitions", "actions", "configuration"),
)
EVERYWHERE: dict[str, tuple[str, dict[str, str]]] = {
    **{view: (view, {}) for view in LISTS},
    "tenants": ("tenant", {}),
    "tenant": ("tenant", {"name": "7"}),
    "group": ("group", {"key": "contact/1:42"}),
    "daemon": ("daemon", {"name": "d1"}),
    "letter": ("letter", {"id": "dead-0"}),
    "task": ("task", {"id": "run-0"}),
    "type": ("type", {"name": "work"}),
}
"""The views of a world, by the names of their pictures."""

# The texts of a page that stand out from their ground by less than 4.5 to 1.
CONTRAST = """() => {
  const channel = (value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const drawn = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const weak = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    if (!own || !node.getClientRects().length || node.disabled) continue;
    const grounds = [];
    for (let each = node; each; each = each.parentElement) {
      grounds.unshift(getComputedStyle(each).backgroundColor);
    }
    const style = getComputedStyle(node);
    const ground = light(drawn(grounds));
    const text = light(drawn([...grounds, node.closest("svg") ? style.fill : style.color]));
    const ratio = (Math.max(ground, text) + 0.05) / (Math.min(ground, text) + 0.05);
    if (ratio < 4.5) weak.push(`${node.tagName} ${node.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  return weak;
}"""
