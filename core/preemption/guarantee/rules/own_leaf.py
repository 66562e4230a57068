"""Determines what an ask may take from other applications of its own leaf (preemption.md M)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.nodes import Node
from kornel.core.preemption.entitlement import Entitlement
from kornel.core.preemption.guarantee.rules.allowances import LeafTerms, Rules, Terms
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.state.records.victim_index import VictimIndex


class OwnLeafTerms(Terms):
    """Applies the laws to the tasks of the leaf of one ask. Every type that it asks for justifies a victim."""

    def __init__(self, ask: Allocation, lent: Mapping[Node, Sequence[Reservation]]) -> None:
        leaf = ask.queue
        entitled = Entitlement(dict.fromkeys([t for t, _ in ask.shape.pairs], leaf), {})
        super().__init__(ask, leaf, entitled, Needs(ask, leaf, entitled, lent))

    def open_leaves(self, _top: object, _index: VictimIndex, spared: Collection[str]) -> None:
        """Finds the rules for taking victims from the leaf of the ask, unless it is *spared*."""
        leaf = self.fence
        if leaf.path in spared:
            return
        branch = self._new_branch(leaf)
        branch.inherited = False  # No guarantee entitles the ask, so its victims need not be above one.
        highest = self._ask.priority - leaf.properties.preempt_within_gap
        rules = Rules(highest, branch.adjusted, branch.declared, bool(branch.rooms))
        self.open[leaf] = LeafTerms(branch, rules, branch.rooms)
