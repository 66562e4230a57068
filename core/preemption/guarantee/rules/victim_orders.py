"""Lists the orders of victims that ``preemption.cost`` can name. To add one, write it in a file of its own and add a
line here, and its name to the keys of the kind in ``core/domain/preemption_kinds.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kornel.core.preemption.guarantee.rules.cost import Pricing, lost_work

COSTS: Final[Mapping[str, Pricing | None]] = {
    "default": None,
    "lost-work": lost_work,
}
"""The order of victims within a class, by the value of ``preemption.cost`` (preemption.md F11); ``None``: priority,
then age (B.5)."""
