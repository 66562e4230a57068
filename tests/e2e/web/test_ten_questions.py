"""Ten questions of an administrator, each answered on the page in one or two steps."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from kornel.core.archive.settings import history_settings
from kornel.core.process.history import HistoryChoice
from kornel.v1 import admin_pb2, admin_pb2_grpc
from tests.e2e.rest.shim import Cluster, rest_cluster
from tests.e2e.rest.test_explanations import MAY
from tests.e2e.rest.test_usage_history import committed, look
from tests.e2e.web.browser import Visit, visit

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

CONFIG = """
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true}
    queues:
      - name: root
        submitacl: "*"
        properties: {preemption.delay: 1s}
        queues:
          - name: a
            resources: {guaranteed: {vcore: 4}}
          - name: b
            properties: {quota.preemption.delay: 1m}
"""


class Reader:
    """Somebody who looks something up; each step is counted."""

    def __init__(self, shown: Visit) -> None:
        self.shown = shown
        self.page: Page = shown.page
        self.steps = 0

    async def begin(self) -> None:
        """Start from the overview."""
        await self.shown.view("overview")
        self.steps = 0

    async def tab(self, name: str) -> None:
        await self.page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
        self.steps += 1

    async def search(self, text: str, name: str) -> None:
        """Type *text*, and go to what is called *name*."""
        await self.page.get_by_label("Search by part of a name").fill(text)
        await self.page.keyboard.press("Enter")
        await self.page.get_by_role("grid", name="What was found").get_by_role("link", name=name).first.click()
        self.steps += 2

    def done(self) -> None:
        """Fails if it took more than two steps."""
        assert self.steps <= 2


async def live_through(cluster: Cluster) -> None:
    """A queue is preempted, an ask waits, a node is drained, and the configuration changes."""
    await cluster.register(CONFIG)
    await cluster.node("n1", vcore=4_000)
    await cluster.submit("filler", queue="root.b", user="bob")
    for at in range(4):
        await cluster.ask(f"fill-{at}", "filler", vcore=1_000)
    await look(cluster, 3)
    await cluster.submit("urgent", queue="root.a", user="ann")
    await cluster.ask("wanted", "urgent", fields={"preemptionPolicy": MAY}, vcore=2_000)
    await cluster.wait(3)
    await cluster.ask("late", "filler", vcore=3_000)
    await look(cluster, 2)
    await cluster.configure(CONFIG.replace("vcore: 4}", "vcore: 3}"))
    await admin_pb2_grpc.AdminServiceStub(cluster.core.channel).DrainNode(admin_pb2.DrainNodeRequest(node_id="n1"))
    await committed(cluster)


async def test_ten_questions(browser: Browser, tmp_path: Path) -> None:
    choice = HistoryChoice(history_settings(str(tmp_path / "history.db"), []), required=True)
    async with rest_cluster(history=choice) as cluster:
        await live_through(cluster)
        day = datetime.fromtimestamp(cluster.core.clock.now_ns() / 1e9, UTC).strftime("%Y-%m-%d")
        url = f"http://{cluster.core.server.rest_address}/"
        async with visit(browser, url, timezone_id="UTC") as shown:
            # The history of a core whose clock stands still is looked at from the time that this clock shows. While
            # the page's clock is put in, it shows 1970 for a moment, so no page may be there that asks for anything.
            await shown.page.goto("about:blank")
            await shown.page.clock.install(time=cluster.core.clock.now_ns() / 1e9 + 1)
            await shown.page.goto(url)
            reader, page = Reader(shown), shown.page
            panel = page.locator("#panel")

            await reader.begin()
            await reader.search("late", "late")
            await expect(panel).to_contain_text("Why it waits")
            reader.done()

            await reader.begin()
            await page.goto(f"{url}#/queues?details=queue:root.b")
            await panel.get_by_role("link", name="What if its limits were different?").click()
            await page.get_by_label("Max", exact=True).fill("vcore=1")
            await page.get_by_role("button", name="What would happen?").click()
            await expect(page.get_by_role("region", name="What would happen")).to_contain_text("fill-")

            await reader.begin()
            await reader.tab("Users")
            await page.get_by_label("Sort by CPU").click()
            reader.steps += 1
            rows = page.get_by_role("grid", name="Users and groups").get_by_role("row")
            await expect(rows.filter(has_text="bob")).to_have_attribute("aria-rowindex", re.compile("[12]"))
            reader.done()

            await reader.begin()
            await reader.tab("Preemption")
            await page.get_by_label("Range").select_option("24h")
            reader.steps += 1
            decision = page.get_by_role("grid", name="Decisions to preempt").get_by_role("row").first
            for text in ("filler in root.b", "wanted", "urgent in root.a", "all"):
                await expect(decision).to_contain_text(text)
            reader.done()

            await reader.begin()
            await reader.search("n1", "n1")
            await expect(panel).to_contain_text("Why waiting asks are not placed here")
            await expect(panel).to_contain_text("Node draining")
            reader.done()

            await reader.begin()
            await reader.tab("Configuration")
            # The list of problems moves what is below it, and with it what a click would hit.
            await expect(page.get_by_role("status").filter(has_text="1 warning")).to_be_visible()
            versions = page.get_by_role("grid", name="Versions").get_by_role("row")
            await expect(versions.filter(has_text="In force")).to_contain_text("anonymous@")
            await versions.filter(has_text="Registration").click()
            reader.steps += 1
            await expect(page.locator(".diff")).to_contain_text("guaranteed: {vcore: 3}")
            reader.done()

            await reader.begin()
            await expect(page.get_by_role("region", name="Health")).to_contain_text("rm-1 is there, 3 streams open")
            await expect(page.locator("#holds")).to_contain_text("n1 (by anonymous@127.0.0.1)")
            reader.done()

            await page.goto(f"{url}#/queues?details=queue:root.b")
            reader.steps = 0
            await panel.get_by_role("link", name="Its use over time").click()
            await page.get_by_label("One day").fill(day)
            reader.steps += 2
            await expect(page.get_by_role("img", name=re.compile("Use of root.b: CPU"))).to_be_visible()
            await expect(page).to_have_url(re.compile("from="))
            await page.reload()
            await expect(page.get_by_label("One day")).to_have_value(day)
            reader.done()

            await reader.begin()
            await reader.tab("Users")
            await page.get_by_label("User", exact=True).fill("ann")
            await page.get_by_label("Queue it names").fill("root.a")
            await page.get_by_role("button", name="Where would it be placed?").click()
            reader.steps += 1
            await expect(page.get_by_role("region", name="Placement")).to_contain_text("root.a")
            reader.done()
            await shown.picture("placement-light")
            shown.check()
