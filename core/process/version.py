"""Finds the version of the core, and the address of its documentation."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata, version


def core_version() -> str:
    """Returns the version of the installed distribution; ``unknown`` when run from a tree that was never installed."""
    try:
        return version("kornel")
    except PackageNotFoundError:
        return "unknown"


def find_documentation() -> str:
    """Returns the address of the documentation in the repository that the installed distribution names; empty: none.

    ``{page}`` in it stands for the name of a page.
    """
    try:
        addresses = metadata("kornel").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    named = dict(address.split(", ", 1) for address in addresses if ", " in address)
    return f"{named['Repository']}/blob/HEAD/docs/{{page}}.md" if "Repository" in named else ""
