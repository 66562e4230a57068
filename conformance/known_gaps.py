"""Cases that the core of this repository does not pass yet, by number, with the reason.

The list must stay true: our tests fail if a listed case passes, or if a number of the contract has neither a script nor
a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LAST_CASE: Final = 183

GAPS: Final[Mapping[int, str]] = MappingProxyType({})
