"""Finds places for asks that only a whole gang can make room for, after all of its class that may leave singly was
looked at.

A gang leaves with all of its members, and the work of all of them is lost. So a gang is looked at only for asks that
have no place otherwise, before tasks of less mild classes: one gang before two, the smallest of the least important
class first. Rules: preemption.md B.10, E.5.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final, NamedTuple

from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.nodes import Node
from kornel.core.preemption.gang_losses import is_bound, list_whole
from kornel.core.preemption.monitor.selection.candidates import Candidate, GangCandidate, Want
from kornel.core.preemption.monitor.selection.figures import QueueFigures
from kornel.core.preemption.monitor.selection.places import Planner
from kornel.core.preemption.monitor.selection.round import Round
from kornel.core.state.records.victim_index import age_of, reluctance_of

MOST_GANGS: Final = 64
"""The most gangs that are looked at for one ask, in their order."""
MOST_TRIES: Final = 2_000
"""The most times that a node is looked at for an ask and gangs in one round."""
LOOKS_PER_TRY: Final = 10


class _Gang(NamedTuple):
    """A gang all of whose members may leave. The smallest one in the order of the fields leaves first."""

    reluctance: int
    untold: bool
    """Tells whether a member has no notice yet."""
    priority: int
    size: int
    age: int
    name: str
    leaf: QueueFigures
    members: tuple[Allocation, ...]


class GangPlanner:
    """Plans places for whose asks whole gangs leave, in one round."""

    def __init__(self, run: Round, planner: Planner) -> None:
        self._run: Final = run
        self._planner: Final = planner
        self._tries = MOST_TRIES
        self.level = 0
        """The last class of which gangs may leave now."""
        self.several = False
        """Tells whether several gangs may leave for one ask, because no single one is enough."""

    def list_classes(self) -> Generator[int, None, list[int]]:
        """Returns the classes of the gangs that run in leaves that the monitor may take from, the mildest first."""
        found: set[int] = set()
        for leaf in self._run.picture.leaves_by_path():
            if leaf.disabled:
                continue
            for application in leaf.queue.applications.values():
                if application.leaves_whole and application.allocations:
                    bound = [member for member in application.allocations.values() if is_bound(member)]
                    found.update(map(reluctance_of, sorted(bound, key=reluctance_of)[-1:]))
                    yield len(bound)
            yield 1 + len(leaf.queue.applications) // 4
        return sorted(found)

    def fill_places(self, ranked: Sequence[Candidate]) -> Generator[int, None, None]:
        """Finds places for asks with whole gangs and, where these are not enough, with *ranked* besides."""
        run = self._run
        on_nodes: dict[Node, list[Candidate]] = {}
        for candidate in ranked:
            on_nodes.setdefault(candidate.node, []).append(candidate)
        yield len(ranked)
        while run.left and self._tries > 0:
            gangs = self._find_gangs()
            yield sum(len(gang.members) for gang in gangs)
            if not gangs:
                return
            wants = yield from self._planner.list_wants()
            served = False
            for want in wants:
                served = yield from self._place_want(want, gangs, ranked, on_nodes)
                if served:
                    break
            if not served:
                return
            # What a gang leaves on other nodes may be room for asks that need nobody else to leave.
            yield from self._planner.fill_places(ranked)

    def _find_gangs(self) -> list[_Gang]:
        """Returns the gangs that may leave as a whole, and of which nobody is selected yet, in their order."""
        run = self._run
        found: list[_Gang] = []
        for leaf in run.left:
            for application in leaf.queue.applications.values():
                if application.leaves_whole and leaf.queue not in run.spared and not leaf.disabled:
                    gang = self._make_gang(application, leaf)
                    if gang is not None and gang.reluctance <= self.level:
                        found.append(gang)
        return sorted(found, key=lambda gang: gang[:6])

    def _make_gang(self, application: Application, leaf: QueueFigures) -> _Gang | None:
        members = list_whole(application)
        if not members or any(member.key in self._run.selection.waits for member in members):
            return None
        return _Gang(
            max(map(reluctance_of, members)),
            any(member.key not in self._run.memory.notified for member in members),
            max(member.spec.priority for member in members),
            len(members),
            max(map(age_of, members)),
            application.application_id,
            leaf,
            tuple(members),
        )

    def _place_want(
        self, want: Want, gangs: Sequence[_Gang], ranked: Sequence[Candidate], on_nodes: dict[Node, list[Candidate]]
    ) -> Generator[int, None, bool]:
        """Gives *want* the first place for which one gang makes room, or several do: on one node, or anywhere if only
        queues are full."""
        full = self._planner.node_with_room(want) if want.needs else None
        first = gangs[:MOST_GANGS]
        for together in [first] if self.several else [[gang] for gang in first]:
            there: dict[Node, list[_Gang]] = {}
            for gang in together:
                for node in _nodes_of(gang.members):
                    there.setdefault(node, []).append(gang)
            tries = [(node, here, on_nodes.get(node, ())) for node, here in there.items()]
            spent = 0
            for node, here, single in [(full, together, ranked), *tries] if full is not None else tries:
                if self.several and len(here) == 1:
                    continue
                self._tries -= 1
                spent += LOOKS_PER_TRY * len(here) + len(single)
                if self._try_node(want, node, here, single, anywhere=single is ranked):
                    yield spent
                    return True
            yield spent
            if self._tries <= 0:
                return False
        return False

    def _try_node(
        self, want: Want, node: Node, gangs: Iterable[_Gang], single: Sequence[Candidate], *, anywhere: bool
    ) -> bool:
        """Places *want* on *node* if *gangs* make room, with candidates in *single* as far as these are needed."""
        # A gang that leaves as a whole takes its surplus along, which must not count twice.
        whole = {gang.members[0].application for gang in gangs}
        usable = [c for c in single if c.allocation.application not in whole or not is_bound(c.allocation)]
        together = [GangCandidate(gang.members, gang.leaf, node) for gang in gangs]
        return self._planner.place_on(want, node, [*usable, *together], anywhere=anywhere)


def _nodes_of(members: Iterable[Allocation]) -> list[Node]:
    return [node for node in dict.fromkeys(member.node for member in members) if node is not None]
