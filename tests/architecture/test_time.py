"""Who may look at the machine's clock: one module (docs/architecture.md, Time)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf.descriptor import Descriptor

from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2
from tests.architecture.trees import list_nodes

ROOT = Path(__file__).parents[2]
THE_CLOCK = ROOT / "core" / "service" / "machine" / "clock.py"
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
        readings = list(_readings(list_nodes(path)))
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
        assert list(_readings(_nodes_of(text))), text
    assert not list(_readings(_nodes_of("import time\ntime.monotonic(); time.perf_counter()")))


SAID_BY_SHIMS = (si.NodeRequest, si.ApplicationRequest, si.AllocationRequest, callback_pb2.AttachRequest)
TIMES_OF_SHIMS = {"AllocationCheckpoint.time_ns"}
"""Fields in which shims state a date. Each is brought to the core's time where its message is read."""
LENGTHS = {
    "AddApplicationRequest.executionTimeoutMilliSeconds",
    "AllocationAsk.executionTimeoutMilliSeconds",
    "Subscription.timeout_ms",
}


def test_every_time_that_a_shim_states_is_known() -> None:
    """A new field with a time has to be brought to the core's time, and then be listed here; tags have scenarios."""
    found: set[str] = set()
    for message in SAID_BY_SHIMS:
        found |= set(_times(message.DESCRIPTOR, set()))
    assert found == TIMES_OF_SHIMS | LENGTHS


def _times(message: Descriptor, seen: set[str]) -> Iterator[str]:
    """Yields numbers in *message* and all within that are called after a time; *seen*: messages looked at before."""
    seen.add(message.full_name)
    for field in message.fields:
        if field.message_type is not None:
            if field.message_type.full_name not in seen:
                yield from _times(field.message_type, seen)
        elif field.enum_type is None and re.search(r"time|date|deadline|_ns$|_ms$|seconds", field.name, re.IGNORECASE):
            yield f"{message.name}.{field.name}"


def _nodes_of(text: str) -> Sequence[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def _readings(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Every use of the wall clock in *nodes*."""
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module in {"time", "datetime"}:
            for alias in node.names:
                names[alias.asname or alias.name] = alias.name
                if node.module == "time" and alias.name in FORBIDDEN["time"]:
                    yield f"line {node.lineno}: from time import {alias.name}"
    for node in nodes:
        if isinstance(node, ast.Attribute):
            before = node.value
            name = before.attr if isinstance(before, ast.Attribute) else getattr(before, "id", "")
            if node.attr in FORBIDDEN.get(names.get(name, name), ()):
                yield f"line {node.lineno}: {name}.{node.attr}"
