"""The rules in docs/spec: whatever cites one names a section, row, case or example that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kornel.conformance.rules import PAGES, Page, UnknownRule, read_page

ROOT = Path(__file__).resolve().parents[2]
CITING = (
    *("core", "cli", "shared", "conformance", "shim_client", "shim_mock", "shim_local", "simulate", "proto"),
    *("tests", "docs"),
)
SUFFIXES = frozenset({".py", ".md", ".proto", ".txt", ".cases", ".yaml"})
LINE_BREAK = re.compile(r"\n[ \t]*(?:#|//|>)?[ \t]*")

# A citation begins with its page and an ID. More IDs may follow: "config.md 7.8, T54, B20", "protocol.md 6 to 9",
# "scheduling.md 7.2, example 41, S-17".
WORD = r"(?:(?:contract |worked )?(?:examples?|cases?)|rows?|rules?|part|section|items?|no\.|numbers?)"
IDENTIFIER = r"(?:DB-\d+|S-\d+|J-[A-Z]\d+[a-z]?|[A-Z]{1,2}\d+[a-z]?|\d+(?:\.\d+)?[a-z]?|[A-K](?:\.\d+)?)"
PAGE = re.compile(rf"(?<![\w/.-])(?P<page>[a-z_]+)\.md,?(?= (?:{WORD} )?{IDENTIFIER}(?![\w-]))")
CITED = re.compile(
    rf"(?:[ ,;]|\band\b|\bto\b|\bor\b)*(?P<word>{WORD})? ?(?P<id>{IDENTIFIER})(?![\w%-]|\.\d| (?:s|ms|KiB|MiB|GiB)\b)"
)
LISTED = ("contract", "case", "example", "item", "row", "rule", "no.", "number")


def citations_in(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Everything that *text* cites: the words, the page, what is said to be cited ("case"), its ID."""
    text = LINE_BREAK.sub(" ", text)
    for found in PAGE.finditer(text):
        at, word = found.end(), ""
        while (cited := CITED.match(text, at)) is not None:
            word = cited["word"] or word
            yield text[found.start() : cited.end()], found["page"], word, cited["id"]
            at = cited.end()


def citations() -> Iterator[tuple[str, str, str, str, str]]:
    for folder in CITING:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts and path.name != Path(__file__).name:
                for citation in citations_in(path.read_text(encoding="utf-8")):
                    yield str(path.relative_to(ROOT)), *citation


def is_written(page: Page, word: str, wanted: str) -> bool:
    """Whether *page* has a section, row, case or example called *wanted*."""
    listed = wanted.isdecimal() and word.removeprefix("worked ").startswith(LISTED)
    if wanted in page.sections and not listed:
        return True
    if wanted.isdecimal() and not listed:
        return False
    if word.startswith("contract"):
        page = read_page("protocol")
    for find in (page.find_row, page.find_item):
        try:
            find(wanted)
        except UnknownRule:
            continue
        return True
    return False


def test_citations_are_found() -> None:
    """As they are written in docstrings, over two lines too."""
    text = '''"""Placed (protocol.md 6 to 9, cases 20, 21; scheduling.md 7.2, example 41,
    S-17), within 2 s."""'''
    assert [(page, word, wanted) for _, page, word, wanted in citations_in(text)] == [
        ("protocol", "", "6"), ("protocol", "", "9"), ("protocol", "cases", "20"), ("protocol", "cases", "21"),
        ("scheduling", "", "7.2"), ("scheduling", "example", "41"), ("scheduling", "example", "S-17"),
    ]  # fmt: skip


def test_everything_cited_is_written() -> None:
    """Somebody who follows a reference finds the rule."""
    found = list(citations())
    assert len(found) > 900
    lost = [
        f"{where}: {words}" for where, words, page, word, wanted in found
        if page not in PAGES or not is_written(read_page(page), word, wanted)
    ]  # fmt: skip
    assert lost == []


def test_every_section_has_its_anchor() -> None:
    """The ID with a dash for the dot, so that links hold when titles change."""
    for name in PAGES:
        text = (ROOT / "docs" / "spec" / f"{name}.md").read_text(encoding="utf-8")
        page = read_page(name)
        assert page.sections
        for section in page.sections.values():
            anchor = section.id.lower().replace(".", "-")
            heading = rf"^{'#' * section.level} {re.escape(section.id)}\.? .* \{{#{anchor}\}}$"
            assert re.search(heading, text, re.MULTILINE), f"{name}.md {section.id}"


def test_rows_cited_alone_are_written() -> None:
    """Those whose ID says which page they are of: DB-7, S-14, T54, V35."""
    alone = {
        "protocol": r"(?<![\w-])DB-\d+",
        "scheduling": r"(?<![\w-])S-\d+",
        "config": r"(?<![\w-])[TV]\d\d(?![\w.])",
    }
    lost = [
        f"{path.relative_to(ROOT)}: {wanted}"
        for folder in ("core", "conformance", "tests")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SUFFIXES and "bench" not in path.parts
        for name, expression in alone.items()
        for wanted in re.findall(expression, path.read_text(encoding="utf-8"))
        if not is_written(read_page(name), "", wanted)
    ]
    assert lost == []
