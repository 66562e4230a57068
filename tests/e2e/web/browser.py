"""Chromium, and what it noticed while it showed a page."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.patience import PATIENCE_S

ARGUMENTS: Final = ("--no-sandbox", "--disable-dev-shm-usage")
PICTURES: Final = os.environ.get("KORNEL_PICTURES", "")
"""The folder for pictures of what tests see; empty: none are taken, because each costs as much as a small test."""
VIEWS: Final = (
    "overview", "queues", "applications", "nodes", "waiting", "users",
    "preemption", "history", "events", "configuration", "what-if",
)  # fmt: skip

expect.set_options(timeout=1_000 * PATIENCE_S)

_WATCH_SHIFTS: Final = """
window.shifts = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


@dataclass
class Visit:
    """One page at *url*. ``complaints``: errors in the console; ``hosts``: asked for anything."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    async def view(self, name: str) -> None:
        """Go to the view called *name*."""
        await self.page.goto(f"{self.url}#/{name}")
        await self.page.locator(f'.tabs a[data-view="{name}"][aria-current="page"]').wait_for()

    async def open_address(self, address: str) -> None:
        """Goes to *address*, and waits until its view is there: a view whose scripts are fetched takes a while, and the
        one before is to be seen meanwhile."""
        await self.page.evaluate(
            """(hash) => new Promise((done) => {
                if (location.hash === hash) return done();
                addEventListener("hashchange", done, { once: true });
                location.hash = hash;
            })""",
            f"#/{address}",
        )
        await expect(self.page.locator("[aria-busy=true]")).to_have_count(0)
        await self.page.locator("#main > .view").wait_for()

    async def picture(self, name: str) -> None:
        """Keep what is to be seen now, for whoever wants to look."""
        if PICTURES:
            await self.page.screenshot(path=f"{PICTURES}/{name}.png")

    async def wait_for_layout(self) -> None:
        """Waits until lists have measured themselves, which they do in the frame after they are put in."""
        await self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    async def ask(self, expression: str) -> Any:
        """What *expression* is in the page."""
        return await self.page.evaluate(expression)

    async def until(self, expression: str) -> None:
        """Return when *expression* holds in the page."""
        await self.page.wait_for_function(expression)

    async def heap_bytes(self) -> int:
        """Returns what the page's own objects take, once what nobody needs is collected."""
        session = await self.page.context.new_cdp_session(self.page)
        await session.send("HeapProfiler.collectGarbage")
        found = await session.send("Runtime.getHeapUsage")
        return int(found["usedSize"])

    def check(self) -> None:
        """Fails if something went wrong that nobody expected."""
        assert self.complaints == [], self.complaints
        assert self.hosts == {urlsplit(self.url).netloc}


_shared: Final[WeakKeyDictionary[Browser, BrowserContext]] = WeakKeyDictionary()
"""By browser, the profile of most pages. Whoever opens one in a profile of its own fetches and compiles all scripts
anew, in a new process, which takes as long again as a small test."""


async def _share_profile(browser: Browser) -> BrowserContext:
    if browser not in _shared:
        _shared[browser] = await browser.new_context()
    return _shared[browser]


@asynccontextmanager
async def visit(
    browser: Browser, url: str, *, theme: Any = "light", fresh: bool = False, **context: Any
) -> AsyncIterator[Visit]:
    """Opens *url* in a page that knows nothing of what the browser has shown before, but may have scripts in its cache.

    *fresh*: it has not; its browser may as well have been started for it. So it is where *context* has options.
    """
    fresh = fresh or bool(context)
    profile = await browser.new_context(**context) if fresh else await _share_profile(browser)
    page = await profile.new_page()
    try:
        page.set_default_timeout(1_000 * PATIENCE_S)
        await page.set_viewport_size({"width": 1440, "height": 860})
        await page.emulate_media(color_scheme=theme)
        await page.add_init_script(_WATCH_SHIFTS)
        if not fresh:
            await _forget_visits(page, url)
        found = Visit(page, url)
        page.on(
            "console",
            lambda said: (
                found.complaints.append(f"{said.text} {said.location['url']}")
                if said.type in ("error", "warning")
                else None
            ),
        )
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("request", lambda request: found.hosts.add(urlsplit(request.url).netloc))
        await page.goto(url)
        yield found
    finally:
        await page.close()
        if fresh:
            await profile.close()
        else:
            await profile.set_offline(False)


async def _forget_visits(page: Page, url: str) -> None:
    """Removes what earlier pages of *url* have stored."""
    session = await page.context.new_cdp_session(page)
    found = urlsplit(url)
    origin = f"{found.scheme}://{found.netloc}"
    await session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "local_storage,cookies"})
    await session.detach()
