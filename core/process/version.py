"""The version of the core."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def core_version() -> str:
    """Returns the version of the installed distribution; ``unknown`` when run from a tree that was never installed."""
    try:
        return version("kornel")
    except PackageNotFoundError:
        return "unknown"
