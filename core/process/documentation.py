"""Finds the address of the documentation."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata


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
