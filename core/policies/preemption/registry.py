"""What ``queues.yaml`` can name: the policies of the preemption cycle, and the orders of victims.

To add one, write it in a file of its own and give it a line here; names in the configuration are checked against
these lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from core.policies.preemption.cost import Pricing, lost_work
from core.policies.preemption.round import Policy, Round, at_its_own_pace, in_batches

POLICIES: Final[Mapping[str, Policy]] = {
    "required-node": lambda round_: round_.serve_required(),
    "quota": lambda round_: round_.enforce_due(),
    "guarantee": in_batches,
    "monitor": at_its_own_pace,
}
"""``preemption.policies``: run in the order of the configuration, by default in this one (preemption.md H)."""

COSTS: Final[Mapping[str, Pricing | None]] = {
    "default": None,
    "lost-work": lost_work,
}
"""``preemption.cost``: who goes first among equally reluctant victims (F11); ``None``: priority, then age (B.5)."""


def run_policies(names: tuple[str, ...], round_: Round) -> None:
    """The policies called *names*, in that order."""
    for name in names:
        POLICIES[name](round_)
