"""Processor time in terms of one and the same machine: bounds fail for slower code, and not for a slower machine.

The pace of a machine halves and doubles within minutes where others share its processors. A fixed piece of work, timed
just before and after what is measured, tells how fast it is then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.bench.report import pace

REFERENCE_STEPS_PER_S: Final = 2_250_000
"""The pace of the machine that bounds were set on, when nothing else ran there."""


class Paced:
    """The time that a piece of work would have taken at the reference pace; 0 until it has ended."""

    def __init__(self) -> None:
        self.seconds = 0.0


@contextmanager
def paced_time() -> Iterator[Paced]:
    """Measures the processor time of what is done within."""
    took, before = Paced(), pace()
    began = time.process_time()
    yield took
    spent_s = time.process_time() - began
    took.seconds = spent_s * (before + pace()) / 2 / REFERENCE_STEPS_PER_S
