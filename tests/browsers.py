"""Finds the browser that tests drive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

INSTALLED: Final = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))
"""The first of them that exists is taken: without windows, a page costs half the processor time."""


def find_browser() -> Path:
    """Returns the browser that CHROMIUM names or that is installed; skips the test and says so if there is none."""
    named = os.environ.get("CHROMIUM")
    found = [path for path in ((Path(named),) if named else INSTALLED) if path.exists()]
    if not found:
        pytest.skip(f"no browser at {named or INSTALLED[0]}: install Debian's chromium-headless-shell, or set CHROMIUM")
    return found[0]
