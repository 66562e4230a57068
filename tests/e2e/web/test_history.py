"""The stored history on the page: how full a queue was, zoomed into; who was preempted, by whom; all after a reload."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from kornel.core.archive.settings import history_settings
from kornel.core.process.history import HistoryChoice
from kornel.core.service.machine.clock import SECOND_NS, ManualClock
from kornel.si.v1 import si_pb2 as si
from tests.e2e.rest.shim import P, rest_cluster
from tests.e2e.rest.test_explanations import MAY
from tests.e2e.rest.test_usage_history import committed, look
from tests.e2e.web.browser import visit

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        properties: {preemption.delay: 1s}
        queues:
          - name: a
            resources: {guaranteed: {vcore: 4}}
          - name: b
"""


async def test_how_full_a_queue_was_and_who_took_from_whom(browser: Browser, tmp_path: Path) -> None:
    choice = HistoryChoice(history_settings(str(tmp_path / "history.db"), []), required=True)
    async with rest_cluster(history=choice) as cluster:
        url = f"http://{cluster.core.server.rest_address}/"
        await cluster.register(CONFIG)
        await cluster.node("n1", vcore=4_000)
        began_ms = cluster.core.clock.now_ns() // 10**6
        await cluster.submit("filler", queue="root.b", user="bob")
        for at in range(4):
            await cluster.ask(f"fill-{at}", "filler", vcore=1_000)
        await look(cluster, 3)
        await cluster.submit("urgent", queue="root.a", user="ann")
        await cluster.ask("wanted", "urgent", fields={"preemptionPolicy": MAY}, vcore=2_000)
        await cluster.wait(3)
        await look(cluster, 2)
        await committed(cluster)
        ended_ms = cluster.core.clock.now_ns() // 10**6
        whole = f"from={began_ms}&to={ended_ms + 1_000}"
        async with visit(browser, f"{url}#/history?queue=root.b&{whole}") as shown:
            page = shown.page
            used = page.get_by_role("img", name="Use of root.b: CPU")
            await expect(used).to_be_visible()
            await expect(page.locator(".u-wrap")).to_have_count(3)
            await expect(page.get_by_role("region", name="Preempted: 2 allocations")).to_be_visible()
            sums = page.get_by_role("region", name="Preemptions between queues").get_by_role("row").first
            await expect(sums).to_contain_text("root.a")
            await expect(sums).to_contain_text("2 cores")
            await page.get_by_label("Sums by").select_option("user")
            await expect(sums).to_contain_text("ann")
            await expect(sums).to_contain_text("bob")
            await shown.picture("history-light")
            box = await used.locator(".u-over").bounding_box()
            assert box is not None
            await page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
            await page.mouse.down()
            await page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 40)
            await page.mouse.up()
            await expect(page).not_to_have_url(re.compile(whole))
            await page.get_by_role("button", name="Show the whole range").wait_for()
            assert int(re.findall(r"from=(\d+)", page.url)[0]) > began_ms
            await page.go_back()
            await expect(page).to_have_url(re.compile(whole))
            await page.reload()
            await expect(used).to_be_visible()
            shown.check()


async def test_what_was_before_the_page_is_shown_live(browser: Browser, tmp_path: Path) -> None:
    """The chart of the overview begins with the stored samples; live decisions say which victims have left."""
    choice = HistoryChoice(history_settings(str(tmp_path / "history.db"), []), required=True)
    clock = ManualClock(time.time_ns() - 400 * SECOND_NS)
    async with rest_cluster(history=choice, clock=clock) as cluster:
        url = f"http://{cluster.core.server.rest_address}/"
        await cluster.register(CONFIG)
        await cluster.node("n1", vcore=4_000)
        await cluster.submit("filler", queue="root.b")
        for at in range(4):
            await cluster.ask(f"fill-{at}", "filler", vcore=1_000)
        await look(cluster, 6)
        await cluster.submit("urgent", queue="root.a")
        await cluster.ask("wanted", "urgent", fields={"preemptionPolicy": MAY}, vcore=2_000)
        await cluster.wait(3)
        await committed(cluster)
        async with visit(browser, url) as shown:
            page = shown.page
            chart = page.get_by_role("img", name=re.compile(r"Utilisation over the last (5|10) min"))
            await expect(chart).to_be_visible()
            await page.reload()
            await expect(chart).to_be_visible()
            await shown.view("preemption")
            row = page.get_by_role("grid", name="Decisions").get_by_role("row").first
            await expect(row).to_contain_text("0 of 2")
            for key in re.findall(r"fill-\d", str(await cluster.get(f"{P}/preemptions"))):
                await cluster.release(key, "filler", si.PREEMPTED_BY_SCHEDULER)
            await committed(cluster)
            await expect(row).to_contain_text("all")
            shown.check()
