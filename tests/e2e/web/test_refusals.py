"""Counts of what was refused lead to what it was and why."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.rest.shim import rest_cluster
from tests.e2e.rest.test_refusals import refuse_some
from tests.e2e.web.browser import visit

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


async def test_a_count_leads_to_what_was_refused_and_why(browser: Browser) -> None:
    """From the tile to the list, from there to one kind, to what the reason means, and to the text that was refused."""
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await refuse_some(cluster)
        page = shown.page
        tile = page.locator(".tile").filter(has_text="Refused")
        await expect(tile.locator("strong")).to_have_text("4")
        await expect(tile).to_contain_text("1 ask, 1 application, 1 node, 1 configuration")
        await shown.picture("overview-refused-light")
        await tile.get_by_role("link", name="Refused").click()
        rows = page.get_by_role("grid", name="What was refused").get_by_role("row")
        await expect(rows).to_have_count(4)
        for texts in (
            ("Ask", "lost", "nobody", "rm-1", "Application not found"),
            ("Application", "app", "root.nowhere", "ann", "rm-1", "No queue"),
            ("Node", "n1", "rm-1", "Node exists"),
            ("Configuration", "version 2", "anonymous", "Bad configuration"),
        ):
            row = rows.filter(has_text=texts[-1])
            for text in texts:
                await expect(row).to_contain_text(text)
        await shown.picture("refusals-light")
        await page.get_by_role("button", name="Nodes 1").click()
        await expect(rows).to_have_count(1)
        await expect(page).to_have_url(re.compile("kind=node"))
        await page.reload()
        await expect(rows).to_have_count(1)
        await rows.get_by_role("link", name="Node exists").click()
        marked = page.locator("[data-marked]").first
        await expect(marked).to_contain_text("node-exists")
        await expect(marked).to_be_in_viewport()
        await page.go_back()
        await page.get_by_role("button", name="Nodes 1").click()
        await page.get_by_role("link", name="version 2").click()
        await expect(page.get_by_text("This version was refused:")).to_be_visible()
        shown.check()


async def test_a_failed_check_leads_to_what_was_refused(browser: Browser) -> None:
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await refuse_some(cluster)
        await cluster.core.server.health.check()
        check = shown.page.locator(".checks li").filter(has_text="Scheduling errors")
        await expect(check).to_contain_text("1 refused")
        await check.get_by_role("link", name="What was refused").click()
        await expect(shown.page.get_by_role("button", name="Asks 1")).to_have_attribute("aria-pressed", "true")
        await expect(shown.page.get_by_role("row").filter(has_text="lost")).to_have_count(1)
        shown.check()
