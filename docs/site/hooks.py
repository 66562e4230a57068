"""Hooks of mkdocs: pages that are generated from the sources, links to the sources, and what the site cannot show.

A page may link to a file of the source tree. On the site, which has no sources, the link becomes its text; one that
leads nowhere fails the build.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.site import commands_reference, grpc_reference, rest_reference, shim_client_reference

ROOT: Final = Path(__file__).resolve().parents[2]
_LOG: Final = logging.getLogger("mkdocs.hooks.kornel")
_CODE: Final = re.compile(r"`[^`]*`")
_DIAGRAM: Final = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)
_OUTSIDE: Final = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    generated = {
        "index.md": _of_the_root("README.md"),
        "changelog.md": _of_the_root("CHANGELOG.md"),
        "reference/grpc.md": grpc_reference.page(),
        "reference/rest.md": rest_reference.page(),
        "reference/commands.md": commands_reference.page(),
        "reference/shim-client.md": shim_client_reference.page(),
    }
    for path, text in generated.items():
        files.append(File.generated(config, path, content=text))
    return files


def _of_the_root(name: str) -> str:
    """A page that lies beside docs/ and not in it."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.replace("](docs/", "](").replace("](CHANGELOG.md)", "](changelog.md)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links to files outside the documentation into text, and leaves out what the site cannot show."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def as_text(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = (folder / target).resolve()
        if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "docs"):
            return found[0]
        if not path.exists():
            _LOG.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        shown = f"`{path.relative_to(ROOT).as_posix()}`"
        return text if text == shown or text.strip("`") in shown else f"{text} ({shown})"

    # The theme would fetch what draws these from another host. The tables beside them say the same.
    markdown = _DIAGRAM.sub("", markdown)
    return _OUTSIDE.sub(as_text, unescape_pipes(markdown))


def unescape_pipes(markdown: str) -> str:
    """Removes the backslash before a pipe in code in a table, because only GitHub needs it and mkdocs would show it."""
    return "\n".join(
        _CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in markdown.split("\n")
    )
