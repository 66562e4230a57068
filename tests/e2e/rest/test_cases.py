"""Each of the 64 cases of rest.md 11 has a test that bears its number."""

from __future__ import annotations

import re
from pathlib import Path

CASES = range(1, 65)


def test_every_case_has_a_test() -> None:
    text = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    found = {int(number) for number in re.findall(r"^(?:async )?def test_case_(\d\d)_", text, re.MULTILINE)}
    assert sorted(found) == list(CASES)
