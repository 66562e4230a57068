"""The rules as text, for people who read "protocol.md 8.2" in a report and have only the wheel.

Their only source is ``docs/spec``; the wheel contains a copy inside this package. A page consists of sections with an
ID in front of their title ("8.2", "D.4"), of tables whose rows may begin with one ("DB-7", "K14"), and of numbered
lists of cases. Text in braces after a title is the anchor for the web site, and is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

PAGES: Final = ("protocol", "scheduling", "config", "preemption", "rest")
CONTRACT: Final = PAGES[0]
CASES: Final = "17"
"""The section of the contract that lists its cases."""

_SHIPPED: Final = Path(__file__).with_name("spec")
_SOURCES: Final = Path(__file__).resolve().parent.parent / "docs" / "spec"

_HEADING: Final = re.compile(r"(?P<level>#{2,4}) (?P<id>[A-K](?:\.\d+)?|\d+(?:\.\d+)?)\.? (?P<title>.+)")
_ROW: Final = re.compile(r"\| *(?P<id>[A-Z]{1,2}(?:-[A-Z]?)?\d+[a-z]?|\d+(?:\.\d+)?[a-z]?)(?: \([^|]*\))? *\|")
_ITEM: Final = re.compile(r"(?P<id>\d+)\. ")
_SEPARATOR: Final = re.compile(r"\|(?:-+\|)+")


class UnknownRule(ValueError):
    """There is no rule with the requested ID."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section without its subsections.

    ``level`` is 2 for a chapter and 3 for a section of a chapter. ``rows`` are the rows of tables by ID, each preceded
    by the heading of its table; ``items`` are the items of numbered lists by number.
    """

    id: str
    level: int
    title: str
    lines: list[str] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)
    items: dict[str, str] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        return f"{'#' * self.level} {self.id} {self.title}"


class Page:
    """One page of ``docs/spec``, with its sections."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.sections: dict[str, Section] = {}
        section: Section | None = None
        for line in text.splitlines():
            heading = _HEADING.fullmatch(line)
            if heading is not None:
                section = Section(heading["id"], len(heading["level"]), heading["title"].partition(" {#")[0])
                self.sections.setdefault(section.id, section)
            elif section is not None:
                section.lines.append(line)
        for section in self.sections.values():
            _read_rows(section)
            _read_items(section)

    def show_section(self, section_id: str) -> str:
        """Returns the text of a section with all its subsections. Raises UnknownRule."""
        if section_id not in self.sections:
            raise UnknownRule(f"{self.name}.md has no section {section_id}")
        sections = list(self.sections.values())
        first = self.sections[section_id]
        shown = [first]
        for section in sections[sections.index(first) + 1 :]:
            if section.level <= first.level:
                break
            shown.append(section)
        return "\n\n".join(f"{section.heading}\n\n" + "\n".join(section.lines).strip("\n") for section in shown)

    def find_row(self, row_id: str, within: str = "") -> tuple[Section, str]:
        """Returns the row of a table that begins with *row_id*, in section *within* if given. Raises UnknownRule."""
        for section in self._sections_within(within):
            if row_id in section.rows:
                return section, section.rows[row_id]
        raise UnknownRule(f"{self.name}.md {within}".strip() + f" has no row {row_id}")

    def find_item(self, number: str, within: str = "") -> tuple[Section, str]:
        """Returns the case or item with that *number*, in section *within* if given. Raises UnknownRule."""
        for section in self._sections_within(within):
            if number in section.items:
                return section, section.items[number]
        raise UnknownRule(f"{self.name}.md {within}".strip() + f" has no item {number}")

    def _sections_within(self, within: str) -> Iterator[Section]:
        """Yields all sections, or those at or below *within* if that is given."""
        return (s for s in self.sections.values() if within in ("", s.id) or s.id.startswith(f"{within}."))


@cache
def read_page(name: str) -> Page:
    """Returns the page of that *name*, one of :data:`PAGES`. Raises UnknownRule."""
    if name not in PAGES:
        raise UnknownRule(f"there are no rules {name}.md; there are {', '.join(f'{page}.md' for page in PAGES)}")
    folder = _SHIPPED if _SHIPPED.is_dir() else _SOURCES
    return Page(name, (folder / f"{name}.md").read_text(encoding="utf-8"))


def show_rule(words: str) -> str:
    """Returns the rule under *words*: "8.2", "protocol.md 8.2", "DB-7" or "protocol.md 16 DB-7".

    If *words* name no page, the contract is searched. With several IDs, the last one is searched within the section
    before it. Raises UnknownRule.
    """
    page, *ids = [CONTRACT, *words.replace(",", " ").split()]
    if ids and ids[0].endswith(".md"):
        page = ids.pop(0).removesuffix(".md")
    if not ids:
        raise UnknownRule("name a rule, such as 8.2 or protocol.md 8.2")
    found = read_page(page)
    wanted = ids[-1]
    if wanted in found.sections:
        return found.show_section(wanted)
    if wanted.isdecimal() or _ROW.fullmatch(f"| {wanted} |") is None:
        raise UnknownRule(f"{page}.md has no section {wanted}")
    section, row = found.find_row(wanted, ids[-2] if len(ids) > 1 else "")
    return f"{section.heading}\n\n{row}"


def show_case(number: int) -> str:
    """Returns the contract's text of a case. Raises UnknownRule."""
    return read_page(CONTRACT).find_item(str(number), CASES)[1]


def _read_rows(section: Section) -> None:
    heading: list[str] = []
    before = ""
    for line in section.lines:
        if _SEPARATOR.fullmatch(line):
            heading = [before, line]
        elif heading and (row := _ROW.match(line)) is not None:
            section.rows.setdefault(row["id"], "\n".join([*heading, line]))
        elif not line.startswith("|"):
            heading = []
        before = line


def _read_items(section: Section) -> None:
    """Adds the numbered items of a section. Indented lines continue an item."""
    number = ""
    for line in section.lines:
        item = _ITEM.match(line)
        if item is not None:
            number = item["id"]
            section.items.setdefault(number, line)
        elif number and line.startswith(" "):
            section.items[number] += f" {line.strip()}"
        else:
            number = ""
