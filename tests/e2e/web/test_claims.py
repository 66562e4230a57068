"""The overview lists the room that is kept for waiting asks."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.rest.shim import rest_cluster
from tests.e2e.rest.test_claims import wait_below_limits, wait_for_claim
from tests.e2e.web.browser import visit
from tests.e2e.web.test_accessibility import axe_script, fits

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


async def test_the_overview_lists_for_whom_room_is_kept(browser: Browser) -> None:
    """A row leads to the explanation of the ask. When nothing is kept any more, the table is gone."""
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await wait_for_claim(cluster)
        page = shown.page
        rows = page.get_by_role("grid", name="Room kept for waiting asks").get_by_role("row")
        await expect(rows).to_have_count(1)
        for text in ("big", "app", "n1", "Age, saved", "4 cores", "3 cores", "0 s"):
            await expect(rows).to_contain_text(text)
        await rows.scroll_into_view_if_needed()
        await shown.wait_for_layout()
        await shown.picture("overview-claims-light")
        await shown.ask(axe_script())
        assert (
            await shown.ask("axe.run('#main', {resultTypes: ['violations']}).then((found) => found.violations)") == []
        )
        for width in (390, 1440):
            await page.set_viewport_size({"width": width, "height": 860})
            await fits(shown)
        await rows.click()
        await expect(page.locator("#panel")).to_contain_text("room has been collected there since")
        await page.keyboard.press("Escape")
        await cluster.release("big")
        await expect(rows).to_have_count(0)
        await expect(page.get_by_role("region", name="Room kept for waiting asks")).to_be_hidden()
        shown.check()


async def test_what_is_kept_below_limits_leads_to_the_queue_and_the_user(browser: Browser) -> None:
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await wait_below_limits(cluster)
        page = shown.page
        rows = page.get_by_role("grid", name="Room kept for waiting asks").get_by_role("row")
        await expect(rows).to_have_count(2)
        await page.get_by_role("searchbox", name="Filter claims").fill("ann")
        await expect(rows).to_have_count(1)
        await rows.get_by_role("link", name="user ann in root.default").click()
        await expect(page.locator("#panel")).to_contain_text("ann")
        await expect(page).to_have_url(re.compile("details=user%3Aann"))
        shown.check()
