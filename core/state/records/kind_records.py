"""Defines how the kinds of preemption keep records of their own in a partition, which need not know them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from kornel.core.model.allocations import Allocation
from kornel.core.model.queues import Queue


class KindRecord:
    """The record of one kind. The functions below are called for all records; each kind has those for which it has a
    use."""

    __slots__ = ()

    def forget_ask(self, ask: Allocation) -> None:
        """Drops what is known about *ask*, which has changed or has other nodes open to it."""

    def forget_asks(self) -> None:
        """Drops what is known about all asks, which the caller makes due."""

    def forget_unused(self, queues: Iterable[Queue]) -> None:
        """Drops what is known about leaves that are not among *queues*, or have become empty."""


R = TypeVar("R", bound=KindRecord)


class KindRecords(dict[type[KindRecord], Any]):
    """The records of one partition by class, each of which is made when it is first looked up."""

    def __missing__(self, cls: type[R]) -> R:
        made = self[cls] = cls()
        return made

    if TYPE_CHECKING:

        def __getitem__(self, cls: type[R]) -> R: ...
