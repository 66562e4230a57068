"""Faults that show whether the tests would notice them, each with one that does (``faults.txt``).

A fault has a line with its name, its file, and a test that fails with it: one of pytest, or a scenario as
``FILE: TITLE``. Then come the lines to replace (``-``), which occur in the file exactly once, and their replacement
(``+``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
FAULTS: Final = Path(__file__).with_name("faults.txt")
SCENARIOS: Final = "tests/scenarios"


class Fault(NamedTuple):
    """A fault: *old* becomes *new* in the file at *path*, and *test* finds it."""

    name: str
    path: str
    old: str
    new: str
    test: str

    def plant_in(self, text: str) -> str:
        """Returns *text*, that of its file, with the fault. Raises ValueError unless what it replaces is there once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: its text occurs {text.count(self.old)} times in {self.path}")
        return text.replace(self.old, self.new)

    @property
    def node_id(self) -> str:
        """The test as pytest calls it."""
        if self.test.startswith("tests/"):
            return self.test
        return f"{SCENARIOS}/test_scenarios.py::test_scenario[{self.test}]"

    def has_test(self) -> bool:
        """Tells whether the test exists, as far as its file says."""
        if self.test.startswith("tests/"):
            path, name, *_ = re.split(r"::|\[", self.test)
            return f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
        file, _, title = self.test.partition(": ")
        return f"\n=== {title}\n" in (ROOT / SCENARIOS / f"{file}.txt").read_text(encoding="utf-8")


def read_faults() -> list[Fault]:
    """Returns the faults in the order of the file."""
    found: list[Fault] = []
    for block in re.split(r"\n(?=\S+ \| )", FAULTS.read_text(encoding="utf-8"))[1:]:
        head, *lines = block.splitlines()
        name, path, test = head.split(" | ")
        old, new = ("\n".join(line[2:] for line in lines if line.startswith(sign)) for sign in ("- ", "+ "))
        found.append(Fault(name, path, old, new, test))
    return found
