"""Cost per allocation against size, from the record: ``python -m tests.bench.plot`` writes ``docs/bench/growth.svg``.

The latest full record that holds P4 is drawn; without one, the latest quick one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench import record

PLOT = record.FOLDER / "growth.svg"
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50
COLOURS = {"nodes": "#1f6fb4", "asks": "#c8501e"}
LIMIT = 1.5
MOST = 2.0


def draw() -> Path | None:
    """Write the plot. None, and nothing written, without a record of P4."""
    found = [one for one in record.all_of_them() if _curves(one)]
    if not found:
        return None
    chosen = ([one for one in found if not one["quick"]] or found)[-1]
    PLOT.write_text(picture(_curves(chosen), chosen), encoding="utf-8")
    return PLOT


def _curves(recorded: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """Cost by size of ``nodes`` and ``asks``, relative to the smallest size."""
    curves = {}
    for row in recorded["rows"]:
        if row["points"]:
            points = {int(size): value for size, value in row["points"].items()}
            kind = "nodes" if "nodes" in row["what"] else "asks"
            first = points[min(points)]
            curves[kind] = {size: points[size] / first for size in sorted(points)}
    return curves


def picture(curves: Mapping[str, Mapping[int, float]], recorded: Mapping[str, Any]) -> str:
    """SVG with a line per curve, sizes on a logarithmic axis."""
    sizes = [size for curve in curves.values() for size in curve]
    low, high = math.log10(min(sizes)), math.log10(max(sizes))

    def x(size: float) -> float:
        return LEFT + (math.log10(size) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(cost: float) -> float:
        return HEIGHT - BOTTOM - min(cost, MOST) / MOST * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" role="img">',
        "<title>Cost per allocation against size</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 20, "P2, engine alone: processor time per allocation, smallest size = 1", "start", 14),
    ]
    for tenths in range(0, 21, 5):
        cost = tenths / 10
        parts += [
            _line(LEFT, y(cost), WIDTH - RIGHT, y(cost), "#dddddd"),
            _text(LEFT - 8, y(cost) + 4, f"{cost:g}", "end"),
        ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        size = 10**power
        parts += [_line(x(size), TOP, x(size), HEIGHT - BOTTOM, "#eeeeee")]
        parts += [_text(x(size), HEIGHT - BOTTOM + 18, f"{size:,}", "middle")]
    parts += [_line(LEFT, y(LIMIT), WIDTH - RIGHT, y(LIMIT), "#999999", dash=True)]
    parts += [_text(WIDTH - RIGHT, y(LIMIT) - 5, f"target: at most {LIMIT:g}", "end")]
    for at, (kind, curve) in enumerate(curves.items()):
        colour = COLOURS[kind]
        parts += _curve([(x(size), y(cost)) for size, cost in curve.items()], colour)
        parts += [_line(LEFT + 10, TOP + 12 + 18 * at, LEFT + 34, TOP + 12 + 18 * at, colour, width=2)]
        parts += [_text(LEFT + 40, TOP + 16 + 18 * at, f"number of {kind}", "start")]
    caption = f"CPython {recorded['python']}, {recorded['taken'][:10]}, {recorded['commit']}"
    parts += [_text(WIDTH - RIGHT, HEIGHT - 10, caption, "end", 10), "</svg>"]
    return "\n".join(parts) + "\n"


def _curve(points: Sequence[tuple[float, float]], colour: str) -> list[str]:
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
    dots = [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}"/>' for px, py in points]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: int = 1, dash: bool = False) -> str:
    dashes = ' stroke-dasharray="6 4"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"{dashes}/>'


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{text}</text>'


if __name__ == "__main__":
    drawn = draw()
    print("no record of P4 yet" if drawn is None else f"drew {drawn.relative_to(record.ROOT)}")
