"""Holds the record by which :mod:`.progress` compares a slice with the one before it."""

from __future__ import annotations


class ProgressRecord:
    """The slices in a row that ended with more to do and decided nothing."""

    __slots__ = ("marks", "turns", "work_left")

    def __init__(self) -> None:
        self.marks: tuple[int, ...] = ()
        """Numbers that differ if the books have changed."""
        self.turns = 0
        """The number of these slices that have not lowered the work left, since the books last changed."""
        self.work_left = 0
        """The work left after the latest of them."""
