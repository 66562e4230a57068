"""Determines what an ask may take from other applications of its own leaf (preemption.md M)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kornel.core.model.allocations import Allocation, Reservation
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs
from kornel.core.model.users import Account
from kornel.core.preemption.entitlement import Entitlement
from kornel.core.preemption.guarantee.rules.allowances import LeafTerms, Rules, Terms
from kornel.core.preemption.guarantee.rules.needs import Needs
from kornel.core.preemption.walk import Effects
from kornel.core.state.records.victim_index import VictimIndex


def list_exceeded(ask: Allocation) -> dict[tuple[Account, int], int]:
    """Returns how much of each type has to leave below the limits of users and groups that *ask* would exceed."""
    found: dict[tuple[Account, int], int] = {}
    for account in ask.accounts if not ask.triggered else ():
        if account.counts_holders and not account.admits(ask.shape.pairs):
            for t, amount in ask.shape.pairs:
                most = account.max.get(t)
                if amount and most is not None:
                    over = account.count_taken(t) - account.count_leaving(t) + amount - most
                    found[account, t] = max(0, over)
    return found


class OwnLeafTerms(Terms):
    """Applies the laws to the tasks of the leaf of one ask. Every type that it asks for justifies a victim."""

    def __init__(self, ask: Allocation, lent: Mapping[Node, Sequence[Reservation]]) -> None:
        leaf = ask.queue
        entitled = Entitlement(dict.fromkeys([t for t, _ in ask.shape.pairs], leaf), {})
        needs = Needs(ask, leaf, entitled, lent)
        self._accounts = needs.add_limits(list_exceeded(ask))
        self._effects_below: dict[tuple[Effects, Pairs], Effects] = {}
        super().__init__(ask, leaf, entitled, needs)
        self.shared = not self._accounts

    def effects_below(self, tasks: Sequence[Allocation], effects: Effects) -> Effects:
        """Returns *effects* with what *tasks*, which leave together, free below the limits of their user and groups."""
        theirs = tasks[0].application.accounts
        freed: dict[int, int] = {}
        for (account, t), i in self._accounts.items():
            if account in theirs:
                freed[i] = sum([task.shape.amounts.get(t, 0) for task in tasks])
        more = tuple([(i, amount) for i, amount in freed.items() if amount])
        if not more:
            return effects
        known = self._effects_below.get((effects, more))
        if known is None:
            serves = (*effects.serves, *[i for i, _ in more])
            known = Effects((*effects.gains, *more), effects.uses, serves, effects.depth)
            self._effects_below[effects, more] = known
        return known

    def most_by_need(self, leaves: int | None = None) -> list[int]:
        """Returns an upper bound as for other terms; below limits of users, the whole need."""
        most = super().most_by_need(leaves)
        for i in self._accounts.values():
            most[i] = self.needs.base[i]
        return most

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
