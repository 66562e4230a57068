"""The committed record: one JSON file per run of the table, in ``docs/bench``.

``python -m tests.bench.record [FILE]`` prints a table of the latest, or of FILE, in Markdown.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.table import Row, number

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "bench"


def document(
    rows: Sequence[Row],
    *,
    quick: bool,
    steps_per_s: tuple[float, float],
    took_s: Mapping[str, float] | None = None,
    largest_costs_us: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """*rows* and what they depend on.

    *steps_per_s*: the pace of the machine before and after, ``report.pace``. *took_s*: of each workload.
    *largest_costs_us*: what :func:`tests.bench.costs.largest` found.
    """
    return {
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "quick": quick,
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "steps_per_s": [round(pace) for pace in steps_per_s],
        "took_s": dict(took_s or {}),
        "largest_costs_us": dict(largest_costs_us or {}),
        "rows": [row.as_dict() for row in rows],
    }


def save(found: dict[str, Any], path: Path) -> None:
    """Write *found* to *path*."""
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def add(found: dict[str, Any]) -> Path:
    """Add *found* to the record. The new file."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    when = datetime.fromisoformat(found["taken"]).strftime("%Y-%m-%dT%H%M%S")
    path = FOLDER / f"{when}-{found['commit']}.json"
    save(found, path)
    return path


def all_of_them() -> list[dict[str, Any]]:
    """Everything recorded, oldest first."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]


def _commit() -> str:
    """Short name of what is checked out; ``unknown`` outside a repository."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or sys.platform


def markdown(found: dict[str, Any]) -> str:
    """The table of *found* for a page."""
    lines = ["| # | Workload | Value | Target | Ratio | Echo | Of it | |", "|---|---|---|---|---|---|---|---|"]
    for row in found["rows"]:
        target = ratio = verdict = echo = share = ""
        if row["target"] is not None:
            target = f"{'≤' if row['at_most'] else '≥'} {number(row['target'])}"
            ratio, verdict = f"{row['ratio']:.2f}", "met" if row["met"] else "**missed**"
        if row["ceiling"] is not None:
            echo, share = number(row["ceiling"]), f"{row['of_ceiling']:.0%}"
        value = f"{number(row['value'])} {row['unit']}"
        lines.append(
            f"| {row['number']} | {row['what']} | {value} | {target} | {ratio} | {echo} | {share} | {verdict} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else all_of_them()[-1]))
