"""The options of an engine, with which a core was started, and their defaults."""

from __future__ import annotations

from typing import Final, NamedTuple

RESERVATION_DELAY_NS: Final = 2 * 10**9
"""The time for which an ask waits before room is held for it on a node."""

RESERVATION_PERCENT: Final = 5
"""The percentage of nodes that may be reserved at once for asks that have waited."""

MOST_ENDED: Final = 10_000
"""The number of ended applications that are remembered."""


class EngineOptions(NamedTuple):
    """The options of an engine.

    ``reservation_delay_ns``: the age at which an ask without room may reserve a node; ``None``: never.
    ``reservation_percent``: the percentage of nodes, at least one, that may be reserved in this way at the same time.
    ``ended``: the most applications that a partition remembers, of those that ended and of those that were rejected.
    """

    reservation_delay_ns: int | None = RESERVATION_DELAY_NS
    reservation_percent: int = RESERVATION_PERCENT
    ended: int = MOST_ENDED
