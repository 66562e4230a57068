"""Which version of the core this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def core_version() -> str:
    """Version of the installed distribution; ``unknown`` when run from a tree that was never installed."""
    try:
        return version("kornel")
    except PackageNotFoundError:
        return "unknown"
