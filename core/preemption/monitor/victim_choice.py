"""The choice of victims on a node for an ask: candidates in order, otherwise the first set of them that is enough
(E.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from kornel.core.model.allocations import Allocation
from kornel.core.model.nodes import Node
from kornel.core.model.shapes import Pairs
from kornel.core.preemption.monitor.candidates import (
    ORIGINATORS,
    Candidate,
    Lack,
    Needs,
    Want,
    Whom,
    count_freed,
    is_met,
    leave_out,
)
from kornel.core.preemption.monitor.figures import Amounts, QueueFigures
from kornel.core.preemption.monitor.node_rooms import NodeRooms
from kornel.core.preemption.monitor.passages import admits, count_leaving
from kornel.core.preemption.monitor.round import Round

MOST_COMBINED: Final = 40
"""The most candidates of one node of which sets are tried."""
SETS_A_NODE: Final = 500
SETS_A_ROUND: Final = 20_000


def is_usable(node: Node, ask: Allocation) -> bool:
    """Tells whether *ask* may run on *node*: it is schedulable, the shim has not refused it, and no victim of the ask
    is stuck there."""
    if not node.schedulable or (ask.refused and node.node_id in ask.refused):
        return False
    return ask.extras is None or node.node_id not in ask.stuck.values()


class VictimChoice:
    """Chooses victims in one round of the monitor.

    rooms   the room left over on nodes
    going   the candidates that are to leave, by node
    spare   the originators that may still be taken, by leaf and type
    """

    def __init__(
        self,
        run: Round,
        rooms: NodeRooms,
        going: dict[Node, list[Candidate]],
        spare: dict[QueueFigures, Amounts],
    ) -> None:
        self._run = run
        self._rooms = rooms
        self._going = going
        self._spare = spare
        self.promised: Final[set[Node]] = set()
        """The nodes where an ask with devices has a place in this round. Each gets one such ask, because what
        is left of its devices is known only when some are kept for that ask."""
        self._sets = SETS_A_ROUND
        """The number of sets of victims that may still be tried in this round, for nodes where candidates in order are
        not enough."""

    def choose_victims(
        self, want: Want, node: Node, candidates: Iterable[Candidate], whom: Whom, *, anywhere: bool = False
    ) -> list[Candidate] | None:
        """Returns those of *candidates*, in order, that have to leave so that *want* runs on *node*; ``None``: all are
        not enough.

        *anywhere*: the node has room already, so the candidates may be on any node.
        """
        if not is_usable(node, want.ask) or not node.could_hold(want.pairs) or not self.may_share(want, node):
            return None
        room = self._rooms.room_for(node, want.ask)
        run = self._run
        lack = {t: amount - room[t] for t, amount in want.pairs if amount > room[t]}
        served = self.has_devices(want, node)
        if not served and (node.devices is None or node in self.promised):
            return None
        if not lack and not want.needs and served:
            return []
        needs = [(queue, dict(need)) for queue, need in want.needs]
        wanted: Lack = dict(lack)
        for _, need in needs:
            wanted.update(need)
        if not served:
            wanted.update(want.pairs)
        chosen: list[Candidate] = []
        spare: dict[QueueFigures, Amounts] = {}
        covered = refused = False
        for candidate in candidates:
            if candidate.taken or (candidate.node is not node and not anywhere):
                continue
            frees = not served and self._frees_devices(want, node, candidate, whom)
            if not frees and not self._is_helpful(candidate, lack, needs, whom, anywhere=anywhere):
                continue
            leaf, pairs = candidate.leaf, candidate.pairs
            limit = run.passage.highest_priority(want.leaf, want.ask.spec.priority, leaf)
            if limit is None or candidate.allocation.spec.priority > limit:
                continue
            if candidate.kind >= ORIGINATORS:
                if whom is not Whom.GIVING:
                    continue
                if leaf not in spare:
                    spare[leaf] = dict(self._spare.get(leaf, {}))
                if not all(spare[leaf].get(t, 0) > 0 for t, _ in candidate.originating):
                    continue
            if whom is Whom.WITHIN and not self._is_whole(leaf, pairs, chosen):
                continue
            if not admits(leaf, pairs, want.leaf, want.pairs, declared=run.declared):
                refused = True
                continue
            count_leaving(leaf, pairs)
            chosen.append(candidate)
            count_freed(candidate, lack, needs, 1)
            if candidate.kind >= ORIGINATORS:
                for t, amount in candidate.originating:
                    spare[leaf][t] -= amount
            if frees:
                served = self.has_devices(want, node, chosen)
            if served and is_met(lack, needs):
                covered = True
                break
        for candidate in chosen:
            count_leaving(candidate.leaf, candidate.pairs, -1)
            if not covered:
                count_freed(candidate, lack, needs, -1)
        if not covered and refused and whom is not Whom.WITHIN and not anywhere:
            # An earlier candidate kept out one that is needed, because their guarantees allow only so much to be taken.
            chosen = self._combine_victims(want, node, candidates, lack, needs, whom)
            covered = bool(chosen)
        if not covered:
            return None
        if len(chosen) > 1:
            leave_out(chosen, lack, needs, partial(self.has_devices, want, node))
        freed: Lack = {}
        for candidate in chosen:
            for t, amount in candidate.pairs:
                freed[t] = freed.get(t, 0) + amount
        return chosen if run.selection.fits(freed, wanted) else None

    def has_devices(self, want: Want, node: Node, chosen: Sequence[Candidate] = ()) -> bool:
        """Tells whether the ask of *want* finds the devices that it wants on *node* once *chosen* and those that leave
        already have left."""
        request = want.ask.shape.devices
        if request is None:
            return True
        if node.devices is None or node in self.promised:
            return False
        given_up = self._run.view.given_up
        gone = [a for a in node.allocations.values() if a.preempted and a not in given_up]
        for candidate in (*self._going.get(node, ()), *chosen):
            gone += candidate.members
        return node.devices.has_room_without(gone, request, want.ask)

    def _frees_devices(self, want: Want, node: Node, candidate: Candidate, whom: Whom) -> bool:
        """Tells whether *candidate* holds a part of a device on *node* that suits *want*, and its leaf has to give
        something up that it holds."""
        request = want.ask.shape.devices
        if request is None or node.devices is None:
            return False
        if whom is not Whom.ANYBODY and not any(self._run.gives_up(candidate.leaf, t) for t, _ in candidate.pairs):
            return False
        usable = [device for device in node.devices if device.share_for(request)]
        return any(member in device.holders for device in usable for member in candidate.members)

    def may_share(self, want: Want, node: Node) -> bool:
        """Tells whether *want* may use the room that others free on *node*: it has to outrank all victims there (law
        6)."""
        highest = self._run.passage.highest_priority
        for candidate in self._going.get(node, ()):
            limit = highest(want.leaf, want.ask.spec.priority, candidate.leaf)
            if limit is None or candidate.allocation.spec.priority > limit:
                return False
        return True

    def _combine_victims(
        self,
        want: Want,
        node: Node,
        candidates: Iterable[Candidate],
        lack: Lack,
        needs: Needs,
        whom: Whom,
    ) -> list[Candidate]:
        """Returns the first lawful set of ordinary or opted-out *candidates* that makes room for *want*.

        The number of sets is bounded for each node and for the round. *lack* and *needs* are left reduced by what is
        chosen.
        """
        run = self._run
        usable: list[Candidate] = []
        for candidate in candidates:
            if candidate.taken or candidate.node is not node or candidate.kind >= ORIGINATORS:
                continue
            limit = run.passage.highest_priority(want.leaf, want.ask.spec.priority, candidate.leaf)
            if limit is not None and candidate.allocation.spec.priority <= limit:
                usable.append(candidate)
        del usable[MOST_COMBINED:]
        chosen: list[Candidate] = []
        sets = min(SETS_A_NODE, self._sets)
        self._sets -= sets

        def cover(at: int) -> bool:
            nonlocal sets
            if is_met(lack, needs) and self.has_devices(want, node, chosen):
                return True
            if at == len(usable) or sets <= 0:
                return False
            sets -= 1
            candidate = usable[at]
            leaf, pairs = candidate.leaf, candidate.pairs
            helps = self._is_helpful(candidate, lack, needs, whom, anywhere=False) or self._frees_devices(
                want, node, candidate, whom
            )
            if helps and admits(leaf, pairs, want.leaf, want.pairs, declared=run.declared):
                count_leaving(leaf, pairs)
                chosen.append(candidate)
                count_freed(candidate, lack, needs, 1)
                found = cover(at + 1)
                count_leaving(leaf, pairs, -1)
                if found:
                    return True
                chosen.pop()
                count_freed(candidate, lack, needs, -1)
            return cover(at + 1)

        found = cover(0)
        self._sets += max(0, sets)
        return chosen if found else []

    def _is_helpful(
        self,
        candidate: Candidate,
        lack: Lack,
        needs: Needs,
        whom: Whom,
        *,
        anywhere: bool,
    ) -> bool:
        leaf, gives = candidate.leaf, self._run.gives_up
        for t, _ in () if anywhere else candidate.here:
            if lack.get(t, 0) > 0 and (whom is Whom.ANYBODY or gives(leaf, t)):
                return True
        for t, _ in candidate.pairs if needs else ():
            if whom is Whom.ANYBODY or gives(leaf, t):
                for queue, need in needs:
                    if need.get(t, 0) > 0 and queue in leaf.lineage:
                        return True
        return False

    def _is_whole(self, leaf: QueueFigures, pairs: Pairs, chosen: list[Candidate]) -> bool:
        """Tells whether *leaf* has to give up all of *pairs* in addition to what is *chosen*."""
        left = dict(self._run.left.get(leaf, {}))
        for candidate in chosen:
            if candidate.leaf is leaf:
                for t, amount in candidate.pairs:
                    left[t] = left.get(t, 0) - amount
        return all(left.get(t, 0) >= amount for t, amount in pairs)
