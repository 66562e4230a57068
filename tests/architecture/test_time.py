"""Who may look at the machine's clock: one module (docs/architecture.md, Time)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
THE_CLOCK = ROOT / "core" / "service" / "clock.py"
FORBIDDEN = {
    "time": {"time", "time_ns", "ctime", "localtime", "gmtime", "asctime", "strftime", "clock_gettime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
"""By the name before the dot, what reads the wall clock (or may, given no argument)."""
MODULES = [path for path in sorted((ROOT / "core").rglob("*.py")) if path != THE_CLOCK]


def test_nobody_else_reads_the_wall_clock() -> None:
    """What lasts is counted by ``Clock.now_ns``, a date that others chose is held against ``Clock.wall_ns``."""
    for path in MODULES:
        readings = list(_readings(path.read_text("utf-8")))
        assert not readings, f"{path.relative_to(ROOT)}: {readings}"


def test_a_reading_would_be_found() -> None:
    """In whatever way it is written."""
    for text in (
        "import time\ntime.time()",
        "import time as t\nt.time_ns()",
        "from time import time_ns\ntime_ns()",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
        "import time\nclock = time.time",
    ):
        assert list(_readings(text)), text
    assert not list(_readings("import time\ntime.monotonic(); time.perf_counter()"))


def _readings(text: str) -> Iterator[str]:
    """Every use of the wall clock in *text*."""
    tree = ast.parse(text)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module in {"time", "datetime"}:
            for alias in node.names:
                names[alias.asname or alias.name] = alias.name
                if node.module == "time" and alias.name in FORBIDDEN["time"]:
                    yield f"line {node.lineno}: from time import {alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            before = node.value
            name = before.attr if isinstance(before, ast.Attribute) else getattr(before, "id", "")
            if node.attr in FORBIDDEN.get(names.get(name, name), ()):
                yield f"line {node.lineno}: {name}.{node.attr}"
