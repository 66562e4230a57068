"""Everything that is shown has an address: what was chosen, what is opened, and the way back."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.rest.shim import TREE, rest_cluster
from tests.e2e.web.browser import visit

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


async def test_back_goes_back_through_details_and_links(browser: Browser) -> None:
    """From a queue to its applications, to an allocation, to its node; and back the same way."""
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register(TREE)
        await cluster.node("node-1", vcore=8000)
        await cluster.submit("shop", queue="root.default")
        await cluster.ask("shop-server-3", "shop", vcore=1000)
        page, panel = shown.page, shown.page.locator("#panel")
        await shown.view("queues")
        await page.get_by_role("treeitem", name="default").click()
        await expect(panel).to_contain_text("root.default")
        await expect(page).to_have_url(re.compile("details=queue%3Aroot.default"))
        await panel.get_by_role("link", name="Applications of this queue").click()
        await page.get_by_role("grid", name="Applications").get_by_role("link", name="shop").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("shop")
        await expect(panel).to_be_hidden()
        grid = page.get_by_role("grid", name="Allocations")
        await grid.get_by_role("link", name="shop-server-3").click()
        await expect(panel).to_contain_text("Allocated")
        await panel.get_by_role("link", name=re.compile("^node-")).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")
        await expect(panel).to_contain_text("Utilisation")
        await page.go_back()
        await expect(page.get_by_role("heading", level=1)).to_have_text("shop")
        await expect(panel).to_contain_text("shop-server-3")
        await page.go_back()
        await expect(panel).to_be_hidden()
        await page.go_back()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Applications")
        await expect(page.get_by_role("link", name="Only applications in root.default")).to_be_visible()
        await page.go_back()
        await expect(panel).to_contain_text("root.default")
        shown.check()


async def test_an_address_shows_the_same_to_somebody_else(browser: Browser, demo: str) -> None:
    """Filter, order, opened queues, types and details are there when the address is opened anew."""
    async with visit(browser, demo) as shown:
        page = shown.page
        await shown.view("queues")
        await page.get_by_role("button", name="Collapse all").click()
        await page.locator(".chooser summary").click()
        await page.get_by_role("checkbox", name="CPU").uncheck()
        await page.get_by_label("Order of queues").select_option("pending")
        await page.get_by_role("treeitem", name="root").click()
        await expect(page).to_have_url(re.compile("details="))
        address = page.url
    async with visit(browser, address) as shown:
        await expect(shown.page.get_by_role("treeitem")).to_have_count(3)
        await expect(shown.page.locator("#panel")).to_contain_text("Amounts")
        await expect(shown.page.get_by_label("Order of queues")).to_have_value("pending")
        await expect(shown.page.locator(".queue-grid.rows-head")).not_to_contain_text("CPU")
    async with visit(browser, f"{demo}#/events?about=3&q=node-1&sort=number") as shown:
        rows = shown.page.get_by_role("grid", name="Events").get_by_role("row")
        await expect(rows.first).to_contain_text("node-1")
        numbers = await shown.ask(
            "[...document.querySelectorAll('.row.data-grid:not([hidden])')]"
            ".sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)"
            ".map((row) => Number(row.firstChild.textContent))"
        )
        assert numbers == sorted(numbers) != []
        await shown.page.get_by_label("Sort by Number").click()
        await expect(shown.page).to_have_url(re.compile("sort=-number"))
        shown.check()


async def test_the_key_of_an_explanation_still_is_an_address(browser: Browser, demo: str) -> None:
    async with visit(browser, f"{demo}#/overview?explain=shop") as shown:
        await expect(shown.page.locator("#panel")).to_contain_text("Nothing of it waits")
        await shown.page.keyboard.press("Escape")
        await expect(shown.page.locator("#panel")).to_be_hidden()
        assert "explain" not in shown.page.url
        shown.check()


async def test_a_list_is_saved_as_it_is_shown(browser: Browser, demo: str) -> None:
    async with visit(browser, f"{demo}#/nodes?as=list&sort=-name&q=node-") as shown:
        await expect(shown.page.get_by_role("grid", name="Nodes").get_by_role("row")).to_have_count(4)
        async with shown.page.expect_download() as saved:
            await shown.page.get_by_role("button", name="Save these nodes as CSV").click()
        download = await saved.value
        lines = (await download.path()).read_text().splitlines()
        assert download.suggested_filename == "nodes.csv"
        assert lines[0].startswith('Node,State,"Fullest, %"')
        assert [line.partition(",")[0] for line in lines[1:]] == ["node-3", "node-2", "node-1", "node-0"]
        shown.check()


async def test_the_header_leads_to_the_documentation_and_to_grafana(browser: Browser) -> None:
    """To what is said of the view that is shown; a word of the core leads to what it means, and from there on."""
    grafana = "https://grafana.example.org/d/kornel"
    async with (
        rest_cluster(docs_url="https://docs.example.org/", grafana_url=grafana) as cluster,
        visit(browser, f"http://{cluster.core.server.rest_address}/") as shown,
    ):
        page = shown.page
        await shown.view("configuration")
        docs = page.get_by_role("link", name="Docs")
        await expect(docs).to_have_attribute("href", "https://docs.example.org/configuration.html")
        await shown.view("preemption")
        await expect(docs).to_have_attribute("href", "https://docs.example.org/preemption.html")
        await expect(docs).to_have_attribute("rel", "noreferrer")
        await expect(page.get_by_role("link", name="Grafana")).to_have_attribute("href", grafana)
        await page.goto(f"{shown.url}#/laws?word=waiting.node-full")
        waiting = page.get_by_role("region", name="Why an ask waits")
        await expect(waiting.locator("[data-marked]").first).to_contain_text("node-full")
        await expect(waiting.get_by_role("link", name="In the documentation")).to_have_attribute(
            "href", "https://docs.example.org/reasons.html#why-an-ask-waits"
        )
        shown.check()


async def test_without_addresses_nothing_leads_away(browser: Browser, demo: str) -> None:
    async with visit(browser, f"{demo}#/laws") as shown:
        await expect(shown.page.get_by_role("heading", level=1)).to_have_text("Laws and words")
        await expect(shown.page.get_by_role("link", name="Docs")).to_be_hidden()
        await expect(shown.page.get_by_role("link", name="Grafana")).to_be_hidden()
        assert await shown.ask("[...document.querySelectorAll('a[target=_blank]')].every((one) => one.hidden)")
        shown.check()
