"""Default values of a partition, used unless the core was started with others."""

from __future__ import annotations

from typing import Final

RESERVATION_DELAY_NS: Final = 2 * 10**9
"""The time for which an ask waits before room is held for it on a node."""

RESERVATION_PERCENT: Final = 5
"""The percentage of nodes that may be reserved at once for asks that have waited."""
