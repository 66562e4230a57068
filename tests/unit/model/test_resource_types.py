"""Which types get an index of their own, which share one, and which index goes to somebody else."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from kornel.core.domain.resources import Resources
from kornel.core.model.shapes import ResourceTypes

WIDTHS: list[int] = []


def types_of(*offered: str, wanted: set[int] | None = None) -> ResourceTypes:
    """Types of which *offered* are; *wanted*: indexes that asks wait for. By default they wait for all."""
    types = ResourceTypes(WIDTHS.append, (lambda t: t in wanted) if wanted is not None else lambda _: True)
    for name in offered:
        types.index_of(name)
    return types


@pytest.mark.long
@pytest.mark.parametrize("letter", ["x", "\N{GREEK SMALL LETTER PI}", "\N{GOTHIC LETTER AHSA}"])
@pytest.mark.parametrize(("count", "length"), [(1, 8), (10, 40), (300, 20), (300, 1_000)])
def test_demands_take_no_more_than_their_estimated_size(count: int, length: int, letter: str) -> None:
    """Their texts count, and names of letters that take four bytes each; six times as much would be no estimate."""
    types = types_of("vcore")

    def make_demand(first: int) -> None:
        names = [f"{number}-".ljust(length, letter) for number in range(count)]
        amounts = {name: 2**40 + first + number for number, name in enumerate(names)}
        types.shape_of(Resources(amounts)).write_lack()

    make_demand(0)
    before = types.made_bytes
    gc.collect()
    tracemalloc.start(1)
    try:
        for number in range(1, 21):
            make_demand(number * 1_000)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    estimated = types.made_bytes - before
    assert taken <= estimated <= 6 * taken
