"""What the core of this repository does not do yet, by case number, with the reason.

The list must stay true: our tests fail when a case listed here passes, and when a number of the contract has neither a
script nor a row here.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

LAST_CASE: Final = 157

_CALLBACKS = "kornel.v1 has no callback service yet"
_NO_SCRIPT = "needs a predicate that keeps a replacement off its own node, and there is no callback service yet"

GAPS: Final = MappingProxyType(
    {
        43: _NO_SCRIPT,
        45: _NO_SCRIPT,
        **dict.fromkeys(range(141, 150), _CALLBACKS),
    }
)
"""Cases without a script are rows here too."""
