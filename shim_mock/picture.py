"""A run as a picture: the usage of each queue over time, its guarantee, and the times when it lost tasks to preemption.

The picture is plain SVG text: it needs no library, opens in any browser, and two pictures can be compared line by line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from kornel.shared.visible import write_visibly
from kornel.shim_mock.model.accounts import Accounts, Sample

WIDTH: Final = 960
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 76, 46
PANEL: Final = 190
GAP: Final = 42
STRIP: Final = 90
MOST_POINTS: Final = 1500
BINS: Final = 120
MOST_PANELS: Final = 4
# Okabe and Ito's palette: colour-blind readers can distinguish its colours, and they are dark enough for a light
# background.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
GRID: Final = "#e3e3e3"
INK: Final = "#333333"


def draw_run(accounts: Accounts, capacity: Mapping[str, int], *, title: str) -> str:
    """Returns a picture as SVG. It has one panel per resource type, in % of *capacity*, and one for preemptions. Time
    is in real seconds."""
    kinds = [kind for kind, amount in capacity.items() if amount][:MOST_PANELS]
    samples = _thin_out(accounts.samples)
    end_s = max([sample.at_s for sample in samples] + [at_s for at_s, _ in accounts.preemptions] + [1.0])
    colours = {leaf: COLOURS[index % len(COLOURS)] for index, leaf in enumerate(sorted(accounts.leaves))}
    height = TOP + len(kinds) * (PANEL + GAP) + STRIP + BOTTOM
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="26" font-size="16" font-weight="600">{escape(write_visibly(title))}</text>',
        *_draw_legend(colours),
    ]
    top = TOP
    for kind in kinds:
        parts += _draw_panel(accounts, samples, kind, capacity[kind], colours, top, end_s)
        top += PANEL + GAP
    parts += _draw_preemptions(accounts.preemptions, colours, top, end_s)
    parts += _draw_seconds(top + STRIP, end_s)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _draw_legend(colours: Mapping[str, str]) -> list[str]:
    parts, x = [], LEFT
    for leaf, colour in colours.items():
        parts.append(f'<line x1="{x}" y1="46" x2="{x + 22}" y2="46" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 28}" y="50">{escape(write_visibly(leaf))}</text>')
        x += 44 + 7 * len(leaf)
    parts.append(
        f'<line x1="{x}" y1="46" x2="{x + 22}" y2="46" stroke="{INK}" stroke-width="1.5" stroke-dasharray="6 4"/>'
    )
    parts.append(f'<text x="{x + 28}" y="50">guaranteed</text>')
    return parts


def _draw_panel(
    accounts: Accounts,
    samples: Sequence[Sample],
    kind: str,
    capacity: int,
    colours: Mapping[str, str],
    top: float,
    end_s: float,
) -> list[str]:
    """Returns the panel of one resource type: a line per queue, dashed lines for guarantees."""
    parts = [f'<text x="{LEFT}" y="{top - 8}" font-weight="600">{escape(write_visibly(kind))}, % of the cluster</text>']
    for percent in (0, 25, 50, 75, 100):
        y = top + PANEL * (1 - percent / 100)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent}</text>')
    for leaf, colour in colours.items():
        guaranteed = accounts.queues[leaf].limits.guaranteed.get(kind)
        if guaranteed:
            y = top + PANEL * (1 - min(1.0, guaranteed / capacity))
            parts.append(
                f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                f'stroke="{colour}" stroke-width="1.5" stroke-dasharray="6 4"/>'
            )
    for leaf, colour in colours.items():
        points = " ".join(
            f"{_x_of(sample.at_s, end_s):.1f},{top + PANEL * (1 - sample.used[leaf].get(kind, 0) / capacity):.1f}"
            for sample in samples
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def _draw_preemptions(
    preemptions: Sequence[tuple[float, str]], colours: Mapping[str, str], top: float, end_s: float
) -> list[str]:
    """Returns the panel of the tasks that each queue lost to preemption, per slice of time."""
    slice_s = end_s / BINS
    bins: list[dict[str, int]] = [{} for _ in range(BINS)]
    for at_s, leaf in preemptions:
        entry = bins[min(BINS - 1, int(at_s / slice_s))]
        entry[leaf] = entry.get(leaf, 0) + 1
    most = max((sum(entry.values()) for entry in bins), default=0)
    strip_title = f"preempted tasks per {slice_s:.2g} s (all: {len(preemptions)})"
    parts = [
        f'<text x="{LEFT}" y="{top - 8}" font-weight="600">{strip_title}</text>',
        f'<line x1="{LEFT}" y1="{top + STRIP}" x2="{WIDTH - RIGHT}" y2="{top + STRIP}" stroke="{GRID}"/>',
        f'<text x="{LEFT - 8}" y="{top + STRIP + 4}" text-anchor="end">0</text>',
    ]
    if not most:
        return parts
    parts.append(f'<text x="{LEFT - 8}" y="{top + 8}" text-anchor="end">{most}</text>')
    width = (WIDTH - LEFT - RIGHT) / BINS
    for index, entry in enumerate(bins):
        y = top + STRIP
        for leaf in sorted(entry):
            tall = STRIP * entry[leaf] / most
            y -= tall
            parts.append(
                f'<rect x="{LEFT + index * width:.1f}" y="{y:.1f}" width="{max(1.0, width - 1):.1f}" '
                f'height="{tall:.1f}" fill="{colours[leaf]}">'
                f"<title>{escape(write_visibly(leaf))}: {entry[leaf]}</title></rect>"
            )
    return parts


def _draw_seconds(y: float, end_s: float) -> list[str]:
    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 86400) if end_s / step <= 12)
    parts = []
    for index in range(int(end_s / step) + 1):
        x = _x_of(index * step, end_s)
        parts.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + 5}" stroke="{INK}"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{index * step:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{y + 36}" text-anchor="middle">real seconds</text>')
    return parts


def _x_of(at_s: float, end_s: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * at_s / end_s


def _thin_out(samples: Sequence[Sample]) -> list[Sample]:
    """Returns at most about MOST_POINTS of *samples*, among them the first and the last."""
    step = max(1, len(samples) // MOST_POINTS)
    thinned = list(samples[::step])
    if samples and thinned[-1] is not samples[-1]:
        thinned.append(samples[-1])
    return thinned
