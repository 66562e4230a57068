"""Finds whole gangs as victims for an ask, if single victims of their class do not make enough room (preemption.md
B.10).

A gang is one candidate of the walk on each node where it has members. On the node it frees the room of the members
there, and in queues the room of all of its members. The laws judge all members: their sum must not bring a queue below
its guarantee, and the highest of their priorities counts. The search is bounded: only the cheapest gangs are looked at,
on a limited number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption.gang_losses import can_leave_whole, is_bound, members_of
from kornel.core.preemption.guarantee.rules.allowances import LeafTerms, Terms
from kornel.core.preemption.guarantee.rules.candidates import Candidates, Solution, full_order
from kornel.core.preemption.guarantee.search.frontier import Solver
from kornel.core.preemption.walk import Candidate
from kornel.core.state.records.victim_index import age_of, reluctance_of

MOST_GANGS: Final = 64
"""The most gangs that are looked at for one ask, the cheapest first."""
MOST_NODES: Final = 64
"""The most nodes that are looked at, those of the cheapest gangs first."""

Lack = Callable[[Node], list[int] | None]


class _Gang(NamedTuple):
    """A gang in which no member is protected by itself."""

    reluctance: int
    order: int
    """The highest adjusted priority of a member, or the sum of the prices."""
    size: int
    oldest: int
    application: Application
    leaf: Queue
    members: dict[Allocation, int]
    """The members, each with its adjusted priority or price."""


class WholeGangSearch:
    """The search of one attempt for whole gangs."""

    def __init__(
        self,
        candidates: Candidates,
        terms: Terms,
        solver: Solver,
        lack: Lack,
        levels: Sequence[int],
        among: Iterable[Node] | None = None,
    ) -> None:
        """Prepares the search among the classes *levels*, from the mildest on. *among* are the only nodes that matter,
        if these are few."""
        self._candidates = candidates
        self._terms = terms
        self._solver = solver
        self._lack = lack
        self._levels = levels
        self._among = None if among is None else frozenset(among)
        self.cut_short = False
        """Tells whether there were more gangs or nodes than were looked at."""

    def list_solutions(self) -> list[Solution]:
        """Returns the solutions with a whole gang among the victims, one for each node looked at, best first."""
        gangs = sorted(self._find_gangs(), key=lambda gang: (*gang[:4], gang.application.application_id))
        self.cut_short = len(gangs) > MOST_GANGS
        on_nodes: dict[Node, list[_Gang]] = {}
        for gang in gangs[:MOST_GANGS]:
            for node in dict.fromkeys(member.node for member in gang.members):
                if node is not None and (self._among is None or node in self._among):
                    on_nodes.setdefault(node, []).append(gang)
        self.cut_short = self.cut_short or len(on_nodes) > MOST_NODES
        found: list[Solution] = []
        for node, here in islice(on_nodes.items(), MOST_NODES):
            solution = self._solve_node(node, here)
            if solution is not None:
                found.append(solution)
        return sorted(found, key=lambda solution: solution.key)

    def _solve_node(self, node: Node, gangs: Iterable[_Gang]) -> Solution | None:
        needs = self._lack(node)
        if needs is None:
            return None
        pool = self._candidates.on_node(node)
        members: dict[str, _Gang] = {}
        for gang in gangs:
            candidate = self._as_candidate(gang, node)
            if candidate is not None:
                # The gang comes after all others of its class: a whole gang is taken only if single tasks are not
                # enough.
                pool[gang.reluctance].append(candidate)
                members[candidate[3]] = gang
        if not members:
            return None
        for level in self._levels:
            victims = self._solver.solve(needs, pool[: level + 1]) if pool[level] else None
            if victims is not None:
                return Solution.of(node, self._take_apart(victims, members))
        return None

    def _as_candidate(self, gang: _Gang, node: Node) -> Candidate | None:
        first = next(member for member in gang.members if member.node is node)
        here = [member.shape for member in gang.members if member.node is node]
        everywhere = [member.shape for member in gang.members]
        # A plan takes either single members of a gang or the whole gang, or a task would count twice.
        surplus = self._candidates.surplus_rooms(gang.application)
        kind = self._terms.kind_of_gang(gang.leaf, here, everywhere, surplus)
        if kind is None:
            return None
        name = f"{first.key} and its gang"
        return (gang.order, gang.oldest, gang.application.preempted_count, name, first, kind)

    @staticmethod
    def _take_apart(victims: Iterable[Candidate], gangs: Mapping[str, _Gang]) -> list[Candidate]:
        """Returns *victims*, in order, with each gang replaced by all of its members."""
        found: list[Candidate] = []
        for victim in victims:
            gang = gangs.get(victim[3])
            if gang is None:
                found.append(victim)
                continue
            earlier = gang.application.preempted_count
            found += [(order, age_of(m), earlier, m.key, m, victim[5]) for m, order in gang.members.items()]
        return sorted(found, key=full_order)

    def _find_gangs(self) -> Iterable[_Gang]:
        for leaf, terms in self._candidates.open_leaves.items():
            for application in self._applications_of(leaf):
                if application.leaves_whole and application.allocations and self._candidates.may_lose(application):
                    gang = self._make_gang(application, leaf, terms)
                    if gang is not None and gang.reluctance in self._levels:
                        yield gang

    def _applications_of(self, leaf: Queue) -> Iterable[Application]:
        """Returns the applications of *leaf* that run on nodes that matter."""
        if self._among is None:
            return leaf.applications.values()
        here = (a.application for node in self._among for a in node.allocations.values() if a.queue is leaf)
        return dict.fromkeys(sorted(here, key=lambda application: application.application_id))

    def _make_gang(self, application: Application, leaf: Queue, terms: LeafTerms) -> _Gang | None:
        members = members_of(application)
        if not members or not can_leave_whole(members) or not all(map(is_bound, members)):
            return None
        if terms.highest is not None and any(member.priority > terms.highest for member in members):
            return None  # Law 6 protects a member.
        orders = {member: self._candidates.order_of(terms, member) for member in members}
        priced = self._candidates.has_prices
        return _Gang(
            max(map(reluctance_of, members)),
            sum(orders.values()) if priced else max(orders.values()),
            len(members),
            max(age_of(member) for member in members),
            application,
            leaf,
            orders,
        )
