"""What the core of this repository does not do yet, by case number, with the reason.

The list must stay true: our tests fail when a case listed here passes, and when a number of the contract has neither a
script nor a row here.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

LAST_CASE: Final = 159

_GANG = "gang scheduling is not implemented: placeholders are neither timed out nor replaced"
_CALLBACKS = "the core does not serve kornel.v1.CallbackService yet"
_EVENTS = "the engine records no events yet"
_UNREGISTER = "the core does not serve kornel.v1.ManagerService yet"

GAPS: Final = MappingProxyType(
    {
        9: "user and group limits are not enforced",
        43: _CALLBACKS,
        44: _GANG,
        45: _CALLBACKS,
        72: _GANG,
        96: _GANG,
        **dict.fromkeys((*range(114, 120), *range(122, 129), 154), _GANG),
        **dict.fromkeys((141, 144, 145, 146, 148, 149), _CALLBACKS),
        142: _EVENTS,
        147: _EVENTS,
        159: _UNREGISTER,
    }
)
