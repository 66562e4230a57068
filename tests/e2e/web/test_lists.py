"""Every list is sorted by every of its columns, and each order has an address."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.e2e.rest.shim import rest_cluster
from tests.e2e.web.browser import visit
from tests.examples import mark_rest_long

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

LISTS = {
    "queues": "Sort queues within their parents",
    "applications": "Sort applications",
    "nodes?as=list": "Sort nodes",
    "users": "Sort users",
    "preemption": "Sort decisions",
    "preemption?sums=yes": "Sort pairs",
    "history": "Sort pairs",
    "events": "Sort events",
    "configuration": "Sort versions",
    "search?text=shop": "Sort finds",
    "application?id=shop": "Sort allocations",
    "application?id=nightly": "Sort asks",
    "nodes?as=list&details=node:node-0": "Sort allocations",
    "refusals": "Sort refusals",
}


SORT_BY_ALL = """async (label) => {
  const heads = () => [...document.querySelectorAll(`[role=group][aria-label="${label}"]`)];
  const find = () => heads().filter((head) => head.checkVisibility()).at(-1).querySelectorAll("button");
  const wrong = [];
  for (let at = 0; at < find().length; at++) {
    const seen = [];
    for (let click = 0; click < 2; click++) {
      const before = find()[at].dataset.sorted;
      find()[at].click();
      for (let frame = 0; find()[at].dataset.sorted === before && frame < 600; frame++)
        await new Promise(requestAnimationFrame);
      seen.push(find()[at].dataset.sorted);
    }
    if (String(seen.sort()) !== "down,up") wrong.push(`${find()[at].innerText}: ${seen}`);
  }
  return wrong;
}"""
"""Clicks each column of a list twice, without a mouse: once it is sorted up, once down. Those that are not are told."""


async def sort_by_mouse(head: Locator) -> None:
    """Sorts by the second column, as somebody does who sees it."""
    button = head.locator("button").nth(1)
    await expect(head.locator("button").nth(2)).to_be_visible()
    before = await button.get_attribute("data-sorted") or "none"
    await button.click()
    await expect(button).not_to_have_attribute("data-sorted", before)


@pytest.mark.parametrize("address", mark_rest_long(LISTS, keep=4))
async def test_every_column_sorts(browser: Browser, demo: str, address: str) -> None:
    label = LISTS[address]
    async with visit(browser, f"{demo}#/{address}") as shown:
        head = shown.page.get_by_role("group", name=label, exact=True).last
        await head.locator("button").first.wait_for()
        await shown.wait_for_layout()
        await sort_by_mouse(head)
        assert await shown.page.evaluate(SORT_BY_ALL, label) == []
        assert "sort=" in shown.page.url
        await shown.page.reload()
        await expect(head.locator("[data-sorted]")).to_have_count(1)
        shown.check()


async def test_the_core_sorts_applications_by_any_column(browser: Browser) -> None:
    """Amounts of any type too, whatever characters are in its name; ended and rejected ones as well."""
    async with rest_cluster() as cluster:
        await cluster.register()
        await cluster.node("n1", vcore=64_000, memory=2**36, **{"example.com/gpu": 8})
        for number, (name, gpus) in enumerate([("one", 2), ("two", 1), ("three", 3)]):
            await cluster.submit(name, queue="root.a", user=f"user-{number}")
            await cluster.ask(f"k-{name}", name, vcore=1_000 * (number + 1), **{"example.com/gpu": gpus})
        await cluster.submit("stray", queue="root.nowhere")
        async with visit(browser, f"http://{cluster.core.server.rest_address}/#/applications") as shown:
            page = shown.page
            grid = page.get_by_role("grid", name="Applications")

            async def names() -> list[str]:
                rows = await grid.get_by_role("row").all()
                tops = [((await row.bounding_box() or {"y": 0})["y"], await row.inner_text()) for row in rows]
                return [text.split("\n")[0] for _, text in sorted(tops)]

            for heading, wanted in (
                ("CPU used", ["three", "two", "one"]),
                ("example.com/gpu used", ["three", "one", "two"]),
                ("User", ["one", "two", "three"]),
                ("Application", ["one", "three", "two"]),
            ):
                await page.get_by_label(f"Sort by {heading}").click()
                await expect(grid.get_by_role("row")).to_have_count(3)
                first = grid.get_by_role("row").filter(has_text=wanted[0])
                await expect(first).to_have_attribute("aria-rowindex", "1")
                assert await names() == wanted, heading
            for state, heading in (("rejected", "Because"), ("rejected", "Rejected"), ("completed", "Ended")):
                await page.get_by_label("State", exact=True).select_option(state)
                await page.get_by_label(f"Sort by {heading}").click()
                await expect(page.get_by_label(re.compile(f"Sort by {heading}, "))).to_be_visible()
                await expect(grid.get_by_role("row")).to_have_count(1 if state == "rejected" else 0)
            shown.check()


async def test_queues_are_sorted_among_their_siblings(browser: Browser, demo: str) -> None:
    async with visit(browser, f"{demo}#/queues?sort=name") as shown:
        items = shown.page.get_by_role("treeitem")
        await expect(items).to_have_count(3)

        async def order() -> list[str]:
            boxes = [(await item.bounding_box() or {"y": 0}, await item.inner_text()) for item in await items.all()]
            tops = [(box["y"], text) for box, text in boxes]
            return [text.strip().split("\n")[0] for _, text in sorted(tops)]

        assert await order() == ["root", "batch", "prod"]
        await shown.page.get_by_label(re.compile("Sort by Queue")).click()
        await expect(shown.page).to_have_url(re.compile("sort=-name"))
        await shown.page.wait_for_timeout(0)
        assert await order() == ["root", "prod", "batch"]
        shown.check()
