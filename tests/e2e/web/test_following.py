"""The page in a browser follows a cluster: the one test of the page that is no long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from kornel.shim_mock.demo import page_address, running_core
from kornel.shim_mock.run import run_scenario
from kornel.shim_mock.scenario import load_scenario
from tests.e2e.web.browser import visit

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCENARIOS = Path(__file__).parents[3] / "shim_mock" / "scenarios"


async def test_the_page_follows_a_cluster_from_nothing_to_preemption(browser: Browser, tmp_path: Path) -> None:
    """Without a reload: no manager yet, then nodes and work, then latency work that takes its guarantee back."""
    log = tmp_path / "core.log"
    async with running_core(log) as address, visit(browser, page_address(log)) as shown:
        await expect(shown.page.get_by_text("No resource manager has registered yet")).to_be_visible()
        await shown.picture("empty-light")
        playing = asyncio.create_task(run_scenario(load_scenario(SCENARIOS / "guarantee.yaml"), address))
        tiles = shown.page.locator(".tile")
        await expect(tiles.filter(has_text="Nodes").locator("strong")).to_have_text("4")
        await expect(shown.page.locator(".capacity-row").first).to_contain_text("32 of 32 cores")
        await shown.view("preemption")
        await expect(shown.page.get_by_text("8 decisions, 16 victims")).to_be_visible()
        await shown.view("overview")
        await expect(tiles.filter(has_text="Preempted").locator("strong")).to_have_text("16")
        await expect(shown.page.locator(".feed").first).to_contain_text("root.prod")
        assert (await playing).passed
        shown.check()
