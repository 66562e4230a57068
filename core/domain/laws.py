"""Which laws bind which kind of preemption (preemption.md A.0). The checks themselves are ``core.laws``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LAWS_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "guarantee": "1 2 3 4 5 6 7",
        "required-node": "1 6",
        "quota": "1 2 5",
        "monitor": "1 2 4 5 6 7",
    }
)
"""Numbers of the laws by kind of decision. A kind that is not here takes nobody's room."""
