"""What the core of this repository does not do yet, by case number, with the reason.

The list must stay true: our tests fail when a case listed here passes, and when a number of the contract has neither a
script nor a row here.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

LAST_CASE: Final = 159

_IN_PLACE = "predicates are not asked about a replacement on its own node yet"
_EVENTS = "the engine records no events yet"

GAPS: Final = MappingProxyType(
    {
        142: _EVENTS,
        147: _EVENTS,
    }
)
