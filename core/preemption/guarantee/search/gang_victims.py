"""Finds whole gangs as victims for an ask, if single victims of their class do not make enough room (preemption.md
B.10).

A gang is one candidate of the walk on each node where it has members. On the node it frees the room of the members
there, and in queues the room of all of its members. The laws judge all members: their sum must not bring a queue below
its guarantee, and the highest of their priorities counts. The search is bounded: only the cheapest gangs are looked at,
on a limited number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.preemption.gang_losses import list_whole
from kornel.core.preemption.guarantee.rules.allowances import Terms
from kornel.core.preemption.guarantee.rules.candidates import LATE, Candidates, Solution, full_order
from kornel.core.preemption.guarantee.search.frontier import Solver
from kornel.core.preemption.walk import Candidate
from kornel.core.state.records.victim_index import age_of, reluctance_of

MOST_GANGS: Final = 64
"""The most gangs that are looked at for one ask, the cheapest first."""
MOST_NODES: Final = 64
"""The most nodes that are looked at, those of the cheapest gangs first."""

Lack = Callable[[Node], list[int] | None]


class WholeGang(NamedTuple):
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

    def as_candidate(self, candidates: Candidates, terms: Terms, node: Node | None = None) -> Candidate | None:
        """Returns the gang as one candidate, who frees on *node* what its members there hold; ``None``: a law forbids
        that, or it is useless. Without *node* its members free room wherever they run."""
        here = [member for member in self.members if node is None or member.node is node]
        # A plan takes either single members of a gang or the whole gang, or a task would count twice.
        surplus = candidates.surplus_rooms(self.application)
        everywhere = [member.shape for member in self.members]
        effects = terms.effects_of_gang(self.leaf, [member.shape for member in here], everywhere, surplus)
        if effects is None:
            return None
        if not terms.shared:
            effects = terms.effects_below(list(self.members), effects)
        name = f"{here[0].key} and its gang"
        return (self.order, self.oldest, self.application.preempted_count, name, here[0], effects)


def find_gangs(candidates: Candidates, among: Iterable[Node] | None = None) -> Iterator[WholeGang]:
    """Yields the gangs that may leave as a whole, of those that run on nodes *among* the given ones, if there are
    any."""
    priced = candidates.has_prices
    for leaf, terms in candidates.open_leaves.items():
        for application in _applications_of(leaf, among):
            members = list_whole(application) if application.leaves_whole and candidates.may_lose(application) else []
            highest = terms.highest
            if not members or (highest is not None and any(member.priority > highest for member in members)):
                continue  # Law 6 protects a member.
            late = candidates.protected_until(terms.branch.guard or leaf, members) > 0
            if late and not candidates.is_late:
                continue
            orders = {member: candidates.order_of(terms, member) for member in members}
            order = sum(orders.values()) if priced else max(orders.values())
            reluctance, oldest = LATE if late else max(map(reluctance_of, members)), max(map(age_of, members))
            yield WholeGang(reluctance, order, len(members), oldest, application, leaf, orders)


def _applications_of(leaf: Queue, among: Iterable[Node] | None) -> Iterable[Application]:
    """Returns the applications of *leaf* that run on nodes that matter."""
    if among is None:
        return leaf.applications.values()
    here = (a.application for node in among for a in node.allocations.values() if a.queue is leaf)
    return dict.fromkeys(sorted(here, key=lambda application: application.application_id))


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
        mild = (gang for gang in find_gangs(self._candidates, self._among) if gang.reluctance in self._levels)
        gangs = sorted(mild, key=lambda gang: (*gang[:4], gang.application.application_id))
        self.cut_short = len(gangs) > MOST_GANGS
        on_nodes: dict[Node, list[WholeGang]] = {}
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

    def _solve_node(self, node: Node, gangs: Iterable[WholeGang]) -> Solution | None:
        needs = self._lack(node)
        if needs is None:
            return None
        pool = self._candidates.on_node(node)
        members: dict[str, WholeGang] = {}
        for gang in gangs:
            candidate = gang.as_candidate(self._candidates, self._terms, node)
            if candidate is not None:
                # The gang comes after all others of its class: a whole gang is taken only if single tasks are not
                # enough.
                pool[gang.reluctance].append(candidate)
                members[candidate[3]] = gang
        if not members:
            return None
        victims = self._solver.solve_mildest(needs, pool, self._levels)
        return None if victims is None else Solution.of(node, self._take_apart(victims, members))

    @staticmethod
    def _take_apart(victims: Iterable[Candidate], gangs: Mapping[str, WholeGang]) -> list[Candidate]:
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
