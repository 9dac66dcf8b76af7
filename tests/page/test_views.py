"""What views do with what isn't as usual: in fields, in answers, and in the browser's clock."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.page.browsing import at, press, shows
from tests.page.world import LOOKER


def test_a_token_that_only_looks(page: Page) -> None:
    """It is kept, and shows bodies. What no header can have is refused like any wrong one."""
    at(page, "task", id="run-0")
    use = page.get_by_role("dialog").get_by_role("button", name="Use it")
    press(page, "Enter the token")
    page.get_by_label("Token", exact=True).fill("a-token-with-a-\N{EURO SIGN}-in-it")
    use.click()
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    page.reload()
    expect(page.locator("#live")).to_contain_text("Live")
    press(page, "Enter the token")
    page.get_by_label("Token", exact=True).fill(LOOKER)
    use.click()
    shows(page, "With this token you may not act.")
    expect(page.get_by_label("Body", exact=True)).to_contain_text("tenant_id")
    expect(page.get_by_role("button", name="Read-only")).to_be_visible()
