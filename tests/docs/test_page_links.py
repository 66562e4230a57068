"""The web page links to pages and sections of the documentation that are there, and has the meanings of the code."""

from __future__ import annotations

import re
from pathlib import Path

from docs.site import page_words

ROOT = Path(__file__).parents[2]
APP = ROOT / "core" / "web" / "static" / "app"
HEADING = re.compile(r"^#+ (.+?)(?: \{#([\w-]+)\})?$", re.MULTILINE)


def sections(page: Path) -> set[str]:
    """The anchors of *page*, as forges and the site make them of headings."""
    found = set()
    for title, anchor in HEADING.findall(page.read_text(encoding="utf-8")):
        found.add(anchor or re.sub(r"[^\w\s-]", "", title.lower()).strip().replace(" ", "-"))
    return found


def test_every_link_leads_to_a_section() -> None:
    module = (APP / "documentation.js").read_text(encoding="utf-8")
    source = module.partition("export const PAGES")[2].partition("};")[0]
    links = dict(re.findall(r'^  "?([\w-]+)"?: "([^"]+)",$', source, re.MULTILINE))
    assert len(links) > 15
    for name, target in links.items():
        page, _, section = target.partition("#")
        path = ROOT / "docs" / f"{page}.md"
        assert path.exists(), name
        assert not section or section in sections(path), name


def test_every_view_has_its_page() -> None:
    views = re.findall(r'^  "?([\w-]+)"?: \["', (APP / "main.js").read_text(encoding="utf-8"), re.MULTILINE)
    source = (APP / "documentation.js").read_text(encoding="utf-8")
    assert len(views) > 12
    assert not [view for view in views if not re.search(rf'^  "?{view}"?: ', source, re.MULTILINE)]


def test_the_words_of_the_page_are_those_of_the_code() -> None:
    text = page_words.make_module()
    assert '""' not in text, "every word has a meaning"
    assert page_words.MODULE.read_text(encoding="utf-8") == text, "write it again: python -m docs.site.page_words"


def test_the_laws_of_the_page_are_those_of_the_documentation() -> None:
    """Law by law in the same order; the documentation says them in more words."""
    laws = re.findall(r'"law (\d)": "(.+)"', (APP / "laws.js").read_text(encoding="utf-8"))
    told = (ROOT / "docs" / "preemption.md").read_text(encoding="utf-8").partition("## The laws")[2]
    assert [number for number, _ in laws] == [str(number) for number in range(1, 9)]
    for number, text in laws[:7]:
        line = re.search(rf"^{number}\. (.+)", told, re.MULTILINE)
        assert line is not None
        assert set(re.findall(r"\w{6,}", text.lower())) & set(re.findall(r"\w{6,}", line[1].lower())), text
