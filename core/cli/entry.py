"""Starts the ``kornel`` command: its version at once, everything else through :mod:`.app`."""

from __future__ import annotations

import sys
from typing import Final

from kornel.core.process.version import core_version

VERSION: Final = (["version"], ["--version"])


def main() -> None:
    """Run ``kornel``. Its version, which scripts ask for, takes nothing of what the other commands import."""
    if sys.argv[1:] in VERSION:
        print(f"kornel {core_version()}")
        return
    from kornel.core.cli.app import run_app  # noqa: PLC0415

    run_app()
