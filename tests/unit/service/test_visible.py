"""Names that people read."""

from __future__ import annotations

import json

import pytest

from kornel.shared.visible import write_json, write_lines, write_visibly

CASES = {
    "plain": ("node-1.a/b äöü 漢字 🙂 עברית", "node-1.a/b äöü 漢字 🙂 עברית"),
    "escape": ("\x1b[31m", r"\x1b[31m"),
    "bell and backspace": ("\a\b", r"\x07\x08"),
    "C1": ("\x85\x9b", r"\x85\x9b"),
    "lines": ("a\nb\r\nc\u2028d\u2029e", r"a\nb\r\nc\u2028d\u2029e"),
    "tab": ("a\tb", r"a\tb"),
    "direction": ("\u202egnp.exe\u202c\u2066\u2069\u200f\u061c", r"\u202egnp.exe\u202c\u2066\u2069\u200f\u061c"),
    "nothing to see": ("a\u200b\u2060\ufeff\u00ad\u3164\u2800\ufe0fb", r"a\u200b\u2060\ufeff\xad\u3164\u2800\ufe0fb"),
    "tags": ("a\U000e0041b", r"a\U000e0041b"),
    "blanks": ("a\u00a0b\u3000c", r"a\xa0b\u3000c"),
    "surrogate": ("\ud800", r"\ud800"),
    "unassigned": ("\U000e0fff", r"\U000e0fff"),
}


@pytest.mark.parametrize("case", CASES)
def test_names_are_written_visibly(case: str) -> None:
    """On one line, in the order in which they are written."""
    text, shown = CASES[case]
    assert write_visibly(text) == shown


def test_documents_keep_their_lines() -> None:
    assert write_lines("a:\n\tb\x1b\r\n") == "a:\n\tb\\x1b\\r\n"


@pytest.mark.parametrize("case", CASES)
def test_json_means_the_same(case: str) -> None:
    text, _ = CASES[case]
    document = json.dumps({"name": text, "list": [text]}, indent=1, ensure_ascii=False)
    shown = write_json(document)
    assert json.loads(shown) == json.loads(document)
    assert all(line.isprintable() for line in shown.splitlines())
