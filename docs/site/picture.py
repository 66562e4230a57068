"""Takes the picture of the web page that the README shows: ``python -m docs.site.picture``, or ``make picture``.

It plays the demo, whose cluster is full and preempts, and looks at the page with the browser that the tests use.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from tests.browsers import INSTALLED

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURE: Final = ROOT / "docs/assets/page.png"
MOST_BYTES: Final = 200_000
VIEW: Final = "overview"
SIZE: Final = {"width": 1400, "height": 600}


@contextmanager
def running_demo() -> Iterator[Iterator[str]]:
    """Yields what the demo says, line by line, while it is played and stays."""
    with tempfile.TemporaryDirectory(prefix="kornel-picture-") as folder:
        command = [sys.executable, "-m", "kornel.shim_mock", "demo", "--keep", "--out", folder]
        with subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, text=True
        ) as demo:
            assert demo.stdout is not None
            try:
                yield demo.stdout
            finally:
                demo.send_signal(signal.SIGINT)


def find_line(said: Iterator[str], pattern: str) -> re.Match[str]:
    """Returns the next line that has *pattern*."""
    for line in said:
        if found := re.search(pattern, line):
            return found
    raise SystemExit(f"the demo ended without {pattern}")


def main() -> None:
    """Take the picture."""
    named = os.environ.get("CHROMIUM")
    found = [path for path in ((Path(named),) if named else INSTALLED) if path.exists()]
    if not found:
        raise SystemExit("no browser: install Debian's chromium-headless-shell, or set CHROMIUM")
    with running_demo() as said, sync_playwright() as playwright:
        address = find_line(said, r"web page at (http://\S+/)")[1]
        browser = playwright.chromium.launch(executable_path=found[0], args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        # From the beginning, so that its chart shows the whole demo.
        page.goto(f"{address}#/{VIEW}")
        find_line(said, "core and cluster go on")
        page.wait_for_function("document.querySelectorAll('[aria-busy=true]').length === 0")
        page.screenshot(path=PICTURE, animations="disabled")
        browser.close()
    size = PICTURE.stat().st_size
    print(f"{PICTURE.relative_to(ROOT)}: {size} bytes")
    assert size <= MOST_BYTES, "it would make every checkout larger: choose a smaller window"


if __name__ == "__main__":
    main()
