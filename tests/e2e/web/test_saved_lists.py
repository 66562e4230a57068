"""Lists say the same as the core, and what is saved of them has all rows, in the units of its headings."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.e2e.rest.shim import TREE, Cluster, rest_cluster
from tests.e2e.web.browser import Visit, visit

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.long]

GPU = "nvidia.com/gpu"
APPLICATIONS = 230
NODES = 205
MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def many() -> AsyncIterator[Cluster]:
    """A cluster with more nodes and applications than a page shows at first; only the last node has GPUs."""
    async with rest_cluster() as cluster:
        await cluster.register(TREE)
        for number in range(NODES - 1):
            await cluster.node(f"n{number:03}", vcore=4_000, memory=2**33)
        await cluster.node("z-gpu", vcore=4_000, memory=2**33, **{GPU: 8})
        await cluster.submit(*(f"app-{number:03}" for number in range(APPLICATIONS)), queue="root.a.a1")
        for number in range(3):
            await cluster.ask(f"k{number}", "app-000", vcore=1_500, memory=2**30)
        await cluster.ask("waits", "app-001", vcore=9_000_000)
        yield cluster


async def save(shown: Visit, noun: str) -> list[dict[str, str]]:
    async with shown.page.expect_download() as saved:
        await shown.page.get_by_role("button", name=f"Save these {noun} as CSV").last.click()
    text = (await (await saved.value).path()).read_text()
    return list(csv.DictReader(io.StringIO(text)))


def page_of(cluster: Cluster) -> str:
    return f"http://{cluster.core.server.rest_address}/"


async def test_types_come_from_all_nodes(browser: Browser, many: Cluster) -> None:
    async with visit(browser, f"{page_of(many)}#/nodes?as=list&sort=-name") as shown:
        await expect(shown.page.get_by_label("Utilisation of")).to_contain_text(GPU)
        await expect(shown.page.get_by_role("row", name="z-gpu")).to_contain_text("0 of 8")
        rows = await save(shown, "nodes")
        assert len(rows) == NODES
        assert (rows[0]["Node"], rows[0][f"{GPU} there"], rows[0][f"{GPU} used"]) == ("z-gpu", "8", "0")
        assert {row["CPU there, cores"] for row in rows} == {"4"}
        assert sum(float(row["CPU used, cores"]) for row in rows) == 4.5
        assert sum(float(row["Memory used, GiB"]) for row in rows) == 3
        assert max(float(row["Fullest, %"]) for row in rows) in (37.5, 75)
        shown.check()


async def test_all_applications_are_saved(browser: Browser, many: Cluster) -> None:
    async with visit(browser, f"{page_of(many)}#/applications?sort=id") as shown:
        await expect(shown.page.get_by_role("row", name="app-000")).to_contain_text("4.5 cores")
        rows = await save(shown, "applications")
        assert [row["Application"] for row in rows] == [f"app-{number:03}" for number in range(APPLICATIONS)]
        assert (rows[0]["CPU used, cores"], rows[0]["Memory used, GiB"]) == ("4.5", "3")
        assert rows[1]["CPU pending, cores"] == "9000"
        assert all(MOMENT.fullmatch(row["Submitted"]) for row in rows)
        shown.check()


async def test_queues_are_saved_open_or_not(browser: Browser, many: Cluster) -> None:
    async with visit(browser, f"{page_of(many)}#/queues?open=root") as shown:
        await expect(shown.page.get_by_role("treeitem")).to_have_count(3)
        rows = {row["Queue"]: row for row in await save(shown, "queues")}
        assert set(rows) == {"root", "root.default", "root.a", "root.a.a1"}
        assert (rows["root.a.a1"]["CPU used, cores"], rows["root.a.a1"]["CPU pending, cores"]) == ("4.5", "9000")
        assert rows["root"][f"{GPU} max"] == "8"
        shown.check()


@pytest.mark.parametrize(
    ("address", "noun", "column"),
    [
        ("application?id=app-000", "allocations", "Placed"),
        ("users", "users", ""),
        ("configuration", "versions", "When"),
    ],
)
async def test_times_and_amounts_are_readable(
    browser: Browser, many: Cluster, address: str, noun: str, column: str
) -> None:
    """No cell has nanoseconds or bytes in it."""
    async with visit(browser, f"{page_of(many)}#/{address}") as shown:
        await shown.page.get_by_role("row").first.wait_for()
        rows = await save(shown, noun)
        assert rows
        assert not [cell for row in rows for cell in row.values() if re.fullmatch(r"\d{9,}", cell)]
        if column:
            assert all(MOMENT.fullmatch(row[column]) for row in rows)
        shown.check()
