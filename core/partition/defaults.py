"""Numbers of a partition that hold unless the core was started with others."""

from __future__ import annotations

from typing import Final

RESERVATION_DELAY_NS: Final = 2 * 10**9
"""How long an ask waits before a node is kept free for it."""

RESERVATION_PERCENT: Final = 5
"""Most nodes of a hundred that are kept free at once."""
