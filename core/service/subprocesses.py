"""Processes of our own beside the core."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def command_of(module: str) -> Sequence[str]:
    """Returns how to run *module*, which is looked for where this one was found: elsewhere only if that is searched
    here."""
    safe = [] if {"", str(Path.cwd())} & set(sys.path) else ["-P"]
    return [sys.executable, *safe, "-m", module]
