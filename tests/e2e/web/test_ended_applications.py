"""Applications that have ended or were rejected are found by a part of their name, and have pages of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from kornel.core.archive.settings import history_settings
from kornel.core.process.history import HistoryChoice
from kornel.core.service.machine.clock import SECOND_NS
from tests.e2e.rest.shim import rest_cluster
from tests.e2e.rest.test_usage_history import committed
from tests.e2e.web.browser import Visit, visit
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]


async def find_by_name(shown: Visit, text: str, name: str) -> None:
    """Search for *text*, and go to the application called *name*."""
    await shown.page.get_by_label("Search by part of a name").fill(text)
    await shown.page.keyboard.press("Enter")
    found = shown.page.get_by_role("grid", name="What was found")
    await found.get_by_role("link", name=name).first.click()
    await expect(shown.page.get_by_role("heading", level=1)).to_have_text(name)


async def test_an_ended_application_with_what_it_held(browser: Browser, tmp_path: Path) -> None:
    """In memory, after a reload of its address, and when only the stored history knows of it."""
    choice = HistoryChoice(history_settings(str(tmp_path / "history.db"), []), required=True)
    async with rest_cluster(history=choice) as cluster:
        await cluster.register()
        await cluster.node("n1", vcore=4_000)
        await cluster.submit("nightly-report-7", queue="root.a", user="ann")
        await cluster.ask("part-1", "nightly-report-7", vcore=1_000)
        await cluster.ask("part-2", "nightly-report-7", vcore=2_000)
        await cluster.wait(5)
        for key in ("part-1", "part-2"):
            await cluster.release(key, "nightly-report-7")
        await cluster.wait(31)
        await committed(cluster)
        async with visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
            page = shown.page
            await find_by_name(shown, "REPORT", "nightly-report-7")

            async def check_page() -> None:
                await expect(page.get_by_role("region", name="Application", exact=True)).to_contain_text("root.a")
                await expect(page.get_by_role("region", name="Application", exact=True)).to_contain_text("ann")
                course = page.get_by_role("region", name="Course")
                for state in ("Accepted", "Running", "Completing", "Completed"):
                    await expect(course).to_contain_text(state)
                held = page.get_by_role("grid", name="Allocations it held").get_by_role("row")
                await expect(held).to_have_count(2)
                for text in ("part-2", "n1", "2", "ended"):
                    await expect(held.filter(has_text="part-2")).to_contain_text(text)

            await check_page()
            await shown.picture("application-ended-light")
            await page.reload()
            await check_page()
            await page.get_by_label("Filter past allocations by any text").fill("part-1")
            await expect(page.get_by_role("grid", name="Allocations it held").get_by_role("row")).to_have_count(1)
            assert "held.q=part-1" in page.url
            await page.get_by_label("Filter past allocations by any text").fill("")
            await expect(page.get_by_role("grid", name="Allocations it held").get_by_role("row")).to_have_count(2)
            shown.check()
            cluster.core.clock.advance(4 * 86_400 * SECOND_NS)
            await cluster.core.settle()
            reader = cluster.core.server.managers.first.runner.reader
            await until(lambda: not list(reader["default"].finished_applications()), "it to be forgotten")
            await page.reload()
            await check_page()
            assert {"404" in said for said in shown.complaints} == {True}, "the core was asked, and does not know it"


async def test_a_rejected_application_says_why(browser: Browser) -> None:
    async with rest_cluster() as cluster:
        await cluster.register()
        await cluster.submit("stray-job-3", queue="root.nowhere", user="bob")
        async with visit(browser, f"http://{cluster.core.server.rest_address}/") as shown:
            page = shown.page
            await find_by_name(shown, "stray", "stray-job-3")
            for _ in range(2):
                await expect(page.get_by_role("region", name="Application", exact=True)).to_contain_text("Rejected")
                await expect(page.get_by_role("region", name="Why it waits")).to_contain_text("no-queue")
                await expect(page.get_by_role("region", name="Course")).to_contain_text("Rejected")
                await expect(page.get_by_role("grid", name="Allocations", exact=True)).to_be_hidden()
                await shown.picture("application-rejected-light")
                await page.reload()
            await page.goto(f"{shown.url}#/applications?state=rejected&sort=-because&q=bob")
            row = page.get_by_role("grid", name="Applications").get_by_role("row")
            await expect(row).to_have_count(1)
            await expect(row).to_contain_text("no-queue")
            shown.check()
