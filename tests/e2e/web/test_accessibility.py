"""Everybody can use the page: axe-core finds nothing in both themes, wide and narrow; long names and many types fit."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from tests.e2e.rest.shim import rest_cluster
from tests.e2e.web.browser import VIEWS, Visit, visit
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

SEEN = (
    *VIEWS,
    "queues?details=queue:root.batch",
    "application?id=nightly",
    "nodes?as=list&details=node:node-1",
    "users?details=user:shim-mock",
    "what-if?suppose=limits&queue=root.batch&max=vcore%3D4&asked=yes",
    "search?text=shop",
    "laws?word=waiting.node-full",
    "refusals",
    "preemption?sums=yes&by=user",
)


def axe_script() -> str:
    found = find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("the package axe-playwright-python is not installed")
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("dark", 1440),
        ("light", 390),
        ("light", 1440),
        ("dark", 1024),
    ],
)
async def test_axe_finds_nothing(browser: Browser, demo: str, theme: str, width: int) -> None:
    script = axe_script()
    async with visit(browser, demo, theme=theme) as shown:
        await shown.page.set_viewport_size({"width": width, "height": 860})
        await shown.ask(script)
        for address in SEEN:
            await shown.open_address(address)
            found: dict[str, Any] = await shown.ask("axe.run(document, {resultTypes: ['violations']})")
            told = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]
            assert told == [], address


async def test_axe_finds_nothing_before_nodes_have_come(browser: Browser, demo: str) -> None:
    async with visit(browser, demo) as shown:
        asked, held = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            asked.set()
            await held.wait()
            await route.continue_()

        await shown.ask(axe_script())
        await shown.page.route("**/partition/default/nodes?*", hold)
        await shown.view("nodes")
        await asked.wait()
        await shown.page.locator(".node-map").wait_for(state="attached")
        found: dict[str, Any] = await shown.ask("axe.run('#main', {resultTypes: ['violations']})")
        assert [one["nodes"][0]["html"] for one in found["violations"]] == []
        held.set()
        await expect(shown.page.locator(".bands")).to_be_visible()


async def fits(shown: Visit) -> None:
    """Fails if the page stays wider than its window, or something that can be used beside it."""
    beside = """[...document.querySelectorAll("#main button, #main input, #main select, .bar button, .bar input")]
        .filter((one) => one.checkVisibility() && !one.closest(".sideways, .amounts, .table-scroll"))
        .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 || one.getBoundingClientRect().left < -1)
        .map((one) => one.outerHTML)"""

    async def has_room() -> bool:
        # What came a moment ago may not have been measured yet.
        await shown.wait_for_layout()
        narrow: bool = await shown.ask("document.documentElement.scrollWidth <= window.innerWidth")
        return narrow and not await shown.ask(beside)

    await until(has_room, "everything to fit the window")


async def test_everything_fits_the_window(browser: Browser, demo: str) -> None:
    async with visit(browser, demo) as shown:
        for address in SEEN:
            await shown.open_address(address)
            for width in (390, 1024, 1600):
                await shown.page.set_viewport_size({"width": width, "height": 844})
                await fits(shown)
                await shown.picture(f"{address.partition('?')[0]}-{width}")


async def test_names_of_250_characters_and_forty_types_can_be_read(browser: Browser) -> None:
    long = "n" * 200 + "-" + "m" * 49
    types = {f"example.com/device-{at}": at + 1 for at in range(38)}
    async with rest_cluster() as cluster, visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
        await cluster.register()
        await cluster.node(long, vcore=4_000, memory=2**33, **types)
        await cluster.submit(long, queue="root.a")
        await cluster.ask(f"k{long}", long, vcore=1_000, memory=2**30, **types)
        page = shown.page
        await page.set_viewport_size({"width": 390, "height": 844})
        for address in ("applications", f"application?id={long}", "nodes?as=list", "queues", "overview", "events"):
            await shown.open_address(address)
            await fits(shown)
        await page.set_viewport_size({"width": 1440, "height": 860})
        await shown.view("queues")
        await expect(page.locator(".chooser summary")).to_have_text("Types: 3 of 40")
        await page.get_by_role("treeitem", name="root").first.click()
        table = page.get_by_role("group", name="Amounts").get_by_role("table")
        await expect(table.get_by_role("rowheader")).to_have_count(40)
        await expect(page.locator("#panel")).not_to_contain_text("-2147483648")
        await page.locator(".chooser summary").click()
        for name in ("CPU", "Memory"):
            await page.get_by_role("checkbox", name=name, exact=True).uncheck()
        await page.get_by_role("checkbox", name="example.com/device-7", exact=True).check()
        await expect(page.locator(".queue-grid.rows-head")).to_contain_text("example.com/device-7")
        await shown.picture("queues-many-types-light")
        await page.reload()
        await expect(page.locator(".queue-grid.rows-head")).to_contain_text("example.com/device-7")
        shown.check()


async def test_the_skip_link_leads_to_the_content(browser: Browser, demo: str) -> None:
    async with visit(browser, f"{demo}#/nodes") as shown:
        await shown.page.locator("#main > .view").wait_for()
        await shown.page.keyboard.press("Tab")
        await expect(shown.page.locator("#skip")).to_be_focused()
        await shown.page.keyboard.press("Enter")
        await expect(shown.page.locator("#main")).to_be_focused()
        assert shown.page.url.endswith("#/nodes")
        await expect(shown.page.get_by_role("heading", level=1)).to_have_text("Nodes")
