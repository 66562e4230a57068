"""Writes what a package index shows of Kornel: the README with links that work there, and the addresses of the project.

The links of README.md are relative, so that they work in a checkout. KORNEL_REPOSITORY_URL says where the checkout can
be read (``https://.../kornel``), with ``/blob/HEAD/`` below it for files and ``/raw/HEAD/`` for pictures, as forges
have it. Where it is not set, links to files are shown as plain words and pictures left out, because a link that leads
nowhere is worse.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "KORNEL_REPOSITORY_URL"
_PICTURE = re.compile(r"!\[([^\]]+)\]\((?![a-z]+:)([^)\s]+)\)\n*")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)")


def make_readme(text: str, repository: str) -> str:
    """Returns *text* with every relative link and picture below *repository*, or without them if that is empty."""
    if not repository:
        return _LINK.sub(r"\1", _PICTURE.sub("", text))
    text = _PICTURE.sub(rf"![\1]({repository}/raw/HEAD/\2)\n\n", text)
    return _LINK.sub(rf"[\1]({repository}/blob/HEAD/\2)", text)


def make_urls(repository: str) -> dict[str, str]:
    """Returns the addresses of the project below *repository*; none if that is empty."""
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Documentation": f"{repository}/blob/HEAD/docs/getting-started.md",
        "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


class IndexPage(MetadataHookInterface):
    """Adds the readme and the addresses to the metadata of a distribution that is built."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get(VARIABLE, "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": make_readme(text, repository)}
        metadata["urls"] = make_urls(repository)
