"""The view Waiting: who waits longest and for what, and what is free though nothing that waits fits."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.rest.shim import rest_cluster
from tests.e2e.web.browser import visit
from tests.e2e.web.test_accessibility import axe_script, fits

RACKS = (
    "partitions: [{name: default, topology: [rack], queues: [{name: root, submitacl: '*', queues: [{name: default}]}]}]"
)

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


async def test_who_waits_and_what_is_stranded(browser: Browser) -> None:
    """A row leads to the explanation of the ask; sums are by queue or user, and by type and rack."""
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register(RACKS)
        for node in ("n1", "n2"):
            await cluster.node(node, vcore=4000, attributes={"rack": f"r-{node}"})
        await cluster.submit("app", "big")
        for key in ("a1", "a2"):
            await cluster.ask(key, "app", vcore=3000)
        await cluster.ask("b1", "big", vcore=2000)
        await cluster.ask("b2", "big", vcore=3000)
        page = shown.page
        await shown.view("waiting")
        rows = page.get_by_role("grid", name="Who waits, the longest first").get_by_role("row")
        await expect(rows).to_have_count(1)
        for text in ("big", "2", "b1", "root.default", "Node full on 2 nodes"):
            await expect(rows).to_contain_text(text)
        stranded = page.get_by_role("region", name="Stranded")
        await expect(stranded).to_contain_text("Of what is free, 2 of 2 cores on 2 nodes.")
        await expect(stranded.get_by_role("listitem")).to_have_text(["r-n1: 1 core", "r-n2: 1 core"])
        await expect(stranded.get_by_role("row")).to_have_count(2)
        await shown.picture("waiting-light")
        await shown.ask(axe_script())
        assert (
            await shown.ask("axe.run('#main', {resultTypes: ['violations']}).then((found) => found.violations)") == []
        )
        for width in (1440, 390):
            await page.set_viewport_size({"width": width, "height": 860})
            await fits(shown)
        await rows.click()
        await expect(page.locator("#panel")).to_contain_text("Why it waits")
        await page.keyboard.press("Escape")
        await page.get_by_label("Sum up").select_option("user")
        await expect(rows).to_contain_text("ann")
        for key in ("b1", "b2"):
            await cluster.release(key, "big")
        await expect(rows).to_have_count(0)
        await expect(stranded).to_contain_text("Wherever something is free that a waiting ask wants")
        await shown.open_address("application?id=app")
        why = page.get_by_role("region", name="Why it waits")
        await expect(why).to_contain_text("nothing waits; the latest of what runs was asked for at")
        shown.check()
