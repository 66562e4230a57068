"""Chromium, and what it noticed while it showed a page."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, expect

CHROMIUM: Final = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS: Final = ("--no-sandbox", "--disable-dev-shm-usage")
PICTURES: Final = os.environ.get("KORNEL_PICTURES", "")
"""The folder for pictures of what tests see; empty: none are taken, because each costs as much as a small test."""
VIEWS: Final = (
    "overview", "queues", "applications", "nodes", "users",
    "preemption", "history", "events", "configuration", "what-if",
)  # fmt: skip

expect.set_options(timeout=30_000)

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
        assert self.complaints == []
        assert self.hosts == {urlsplit(self.url).netloc}


@asynccontextmanager
async def visit(browser: Browser, url: str, *, theme: Any = "light", **context: Any) -> AsyncIterator[Visit]:
    """Opens *url* in a page that knows nothing of what the browser has shown before."""
    page = await browser.new_page(viewport={"width": 1440, "height": 860}, color_scheme=theme, **context)
    try:
        page.set_default_timeout(30_000)
        await page.add_init_script(_WATCH_SHIFTS)
        found = Visit(page, url)
        page.on(
            "console", lambda said: found.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("request", lambda request: found.hosts.add(urlsplit(request.url).netloc))
        await page.goto(url)
        yield found
    finally:
        await page.close()
