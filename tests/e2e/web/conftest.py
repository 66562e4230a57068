"""A browser, and the demo to look at."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests.browsers import find_browser
from tests.e2e.web.browser import ARGUMENTS
from tests.patience import PATIENCE_S
from tests.prepared import python

ROOT = Path(__file__).parents[3]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Starts the browser in which every test opens pages of its own, or skips the test and says that there is none.

    To start one takes up to a second and a half of processor time.
    """
    path = find_browser()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the page of a demo that has been played and was told to stay; at the end it must leave in order."""
    command = [python(), "-m", "kornel.shim_mock", "demo", "--kind", "guarantee", "--keep", "--out"]
    with subprocess.Popen(
        [*command, str(tmp_path_factory.mktemp("demo"))],
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "200", "PYTHONUNBUFFERED": "1", "PATH": os.defpath},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "core and cluster go on" in line:
                break
        found = re.search(r"the page at (http://\S+): Ctrl-C stops them", said)
        assert found, said
        assert f"web page at {found[1]}" in said
        yield found[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
