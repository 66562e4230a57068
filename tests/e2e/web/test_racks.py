"""The map of nodes shows in which zone and rack each of them stands, if the reader wants it to."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.rest.test_topology import simulated
from tests.e2e.web.browser import visit

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


async def test_nodes_are_grouped_by_rack(browser: Browser) -> None:
    """The address keeps the choice, arrow keys go through one rack after the other, and the list names the racks."""
    async with simulated() as (cluster, _, _), visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await shown.view("nodes")
        page = shown.page
        await expect(page.locator(".tools .count")).to_have_text(re.compile(r"^\d+ node"))
        group = page.get_by_label("Group")
        await expect(group.locator("option")).to_have_text(["Not grouped", "By zone", "By rack"])
        await group.select_option("rack")
        assert "by=rack" in page.url
        free = "; ".join(f"{rack}: 0 %, 16 of 16 cores free" for rack in ("a/r1", "a/r2", "b/r3", "b/r4"))
        await expect(page.locator(".node-map")).to_have_accessible_description(free)
        nodes = await page.evaluate("document.querySelector('.tools .count').textContent")
        seen = []
        await page.locator(".node-map").focus()
        for _ in range(int(nodes.split()[0])):
            await page.keyboard.press("ArrowRight")
            await expect(page.locator("#node-active")).not_to_have_text(seen[-1] if seen else "")
            seen.append(await page.locator("#node-active").inner_text())
        racks = [said.rpartition(" in rack ")[2] for said in seen]
        assert list(dict.fromkeys(racks)) == ["a/r1", "a/r2", "b/r3", "b/r4"]
        assert racks == sorted(racks)
        await shown.picture("nodes-by-rack-light")
        await page.keyboard.press("Home")
        await page.keyboard.press("ArrowUp")
        await expect(page.locator("#node-active")).to_have_text(seen[0])
        await page.reload()
        await expect(group).to_have_value("rack")
        await page.get_by_role("button", name="Show as list").click()
        await expect(page.get_by_role("grid", name="Nodes").get_by_role("row").first).to_contain_text("a/r1")
        shown.check()


async def test_without_a_topology_nothing_is_grouped(browser: Browser, demo: str) -> None:
    async with visit(browser, demo) as shown:
        await shown.view("nodes")
        await expect(shown.page.locator(".tools .count")).to_have_text(re.compile(r"^\d+ node"))
        await expect(shown.page.get_by_label("Group")).to_be_hidden()
        shown.check()
