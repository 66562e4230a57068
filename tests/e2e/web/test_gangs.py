"""The page shows a plan for a gang as one decision, and a gang that leaves for it as one group of victims."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from kornel.core.archive.settings import history_settings
from kornel.core.process.history import HistoryChoice
from kornel.core.service.machine.clock import ManualClock
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import resource
from tests.e2e.rest.shim import Cluster, rest_cluster
from tests.e2e.rest.test_explanations import MAY
from tests.e2e.rest.test_usage_history import committed
from tests.e2e.web.browser import visit

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

CONFIG = """
partitions:
  - name: default
    topology: [rack]
    queues:
      - name: root
        submitacl: "*"
        properties: {preemption.delay: 1s}
        queues:
          - name: mpi
            resources: {guaranteed: {vcore: 8}}
          - name: spare
"""


async def submit_gang(cluster: Cluster, name: str, queue: str, cores: int, members: int, **tags: str) -> None:
    total = resource(vcore=1_000 * cores * members)
    await cluster.submit(name, queue=queue, placeholderAsk=total, gangSchedulingStyle="Hard")
    fields: dict[str, Any] = {"placeholder": True, "taskGroupName": "workers", "allocationTags": tags}
    for at in range(members):
        key = f"{name}-{at}"
        await cluster.ask(key, name, fields={**fields, "preemptionPolicy": MAY}, vcore=1_000 * cores)


async def fill_rack(cluster: Cluster) -> None:
    """A gang of four holds the first node of a rack, four tasks hold the second one; another rack is too small."""
    await cluster.register(CONFIG)
    await cluster.node("n1", {"rack": "r1"}, vcore=4_000)
    await submit_gang(cluster, "curie", "root.spare", 1, 4)
    await cluster.node("n2", {"rack": "r1"}, vcore=4_000)
    await cluster.submit("nightly", queue="root.spare")
    for at in range(4):
        await cluster.ask(f"nightly-{at}", "nightly", vcore=1_000)
    await cluster.node("n3", {"rack": "r2"}, vcore=4_000)


async def test_a_plan_for_a_gang_is_one_row(browser: Browser, tmp_path: Path) -> None:
    """Live, once it is called off, and from the history."""
    choice = HistoryChoice(history_settings(str(tmp_path / "history.db"), []), required=True)
    async with rest_cluster(history=choice, clock=ManualClock(time.time_ns())) as cluster:
        await fill_rack(cluster)
        await submit_gang(cluster, "large", "root.mpi", 4, 2, **{"kornel.topology.required": "rack"})
        await cluster.wait(3)
        async with visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
            page, panel = shown.page, shown.page.locator("#panel")
            await shown.view("preemption")
            rows = page.get_by_role("grid", name="Decisions to preempt").get_by_role("row")
            plan = rows.filter(has_text="2 members in rack r1 in root.mpi")
            await expect(plan).to_have_count(1)
            for text in ("gang large", "8 allocations", "gang curie as a whole and others in root.spare", "Preempted"):
                await expect(plan).to_contain_text(text)
            await expect(page.get_by_text("1 decision, 8 victims")).to_be_visible()
            await plan.get_by_text("Preempted").click()
            groups = panel.locator("details.group")
            await expect(groups.locator("summary")).to_have_text(
                [re.compile("gang curie.*leaves as a whole: 4 members"), re.compile("nightly.*4 allocations")]
            )
            await expect(groups.first.get_by_role("link", name="curie-0")).to_be_hidden()
            await groups.first.locator("summary").click()
            await expect(groups.first.get_by_role("link", name="curie-0")).to_be_visible()
            for text in ("a gang as a whole", "rack r1", "large-0", "large-1"):
                await expect(panel).to_contain_text(text)
            await shown.picture("gang-plan-light")
            await page.get_by_role("button", name="Close details").click()

            await cluster.node_action("n2", si.NodeInfo.DECOMISSION)
            await cluster.wait(3)
            await expect(plan).to_contain_text("Called off")
            await expect(rows.filter(has_text="Unit called off")).to_contain_text("8 victims were asked to leave")
            await plan.get_by_text("Called off").click()
            await expect(panel).to_contain_text("8 victims were asked to leave, with 8 cores")
            await committed(cluster)
            await page.get_by_label("Range").select_option("30d")
            await expect(plan).to_have_count(1)
            for text in ("gang large", "gang curie as a whole", "Called off"):
                await expect(plan).to_contain_text(text)
            await plan.get_by_text("Called off").click()
            await expect(groups.locator("summary").first).to_contain_text("leaves as a whole: 4 members")
            shown.check()


async def test_a_gang_that_leaves_for_one_ask_is_one_victim(browser: Browser) -> None:
    async with rest_cluster() as cluster:
        await cluster.register(CONFIG)
        await cluster.node("n1", {"rack": "r1"}, vcore=4_000)
        await submit_gang(cluster, "curie", "root.spare", 1, 4)
        await cluster.submit("urgent", queue="root.mpi")
        await cluster.ask("wanted", "urgent", fields={"preemptionPolicy": MAY}, vcore=2_000)
        await cluster.wait(3)
        async with visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
            await shown.view("preemption")
            row = shown.page.get_by_role("grid", name="Decisions to preempt").get_by_role("row").first
            for text in ("gang curie", "all 4 members, in root.spare", "wanted"):
                await expect(row).to_contain_text(text)
            await row.get_by_text("Preempted").click()
            folded = shown.page.locator("#panel details.group")
            await expect(folded.locator("summary")).to_contain_text("leaves as a whole: 4 members")
            await shown.picture("gang-victim-light")
            shown.check()


async def test_what_would_become_of_a_gang_is_answered_on_the_page(browser: Browser) -> None:
    """A gang that preempts in one rack, and one for which every rack is too small: the racks are named."""
    async with rest_cluster(clock=ManualClock(time.time_ns())) as cluster:
        await fill_rack(cluster)
        await cluster.wait(3)
        async with visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
            page = shown.page
            await shown.view("what-if")
            await page.get_by_role("button", name="A gang arrives").click()
            await page.get_by_label("Queue").fill("root.mpi")
            await page.get_by_label("Each member asks for").fill("vcore=2")
            await page.get_by_label("Members").fill("3")
            await page.get_by_label("All in one").fill("rack")
            await page.get_by_role("button", name="What would happen?").click()
            await expect(page.get_by_text("6 allocations would have to leave")).to_be_visible()
            await expect(page.get_by_text("the members would be in rack r1")).to_be_visible()
            await page.get_by_label("Members").fill("5")
            await page.get_by_role("button", name="What would happen?").click()
            lacks = "rack r2: 2 of 5, 3 short; then rack r1 0; not even an empty one would do"
            await expect(page.get_by_text(lacks)).to_be_visible()
            for word in ("gang incomplete", "ask exceeds guarantee"):
                await expect(page.get_by_role("link", name=re.compile(word, re.IGNORECASE))).to_be_visible()
            await shown.picture("what-if-gang-light")
            shown.check()
