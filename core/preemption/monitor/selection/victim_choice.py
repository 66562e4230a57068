"""The choice of victims on a node for an ask, by the walk that all kinds of preemption share (preemption.md E.5,
B.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from kornel.core.model.allocations import Allocation, sum_amounts
from kornel.core.model.nodes import Node
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import Pairs
from kornel.core.preemption.monitor.plan import Place
from kornel.core.preemption.monitor.selection.candidates import ORIGINATORS, Candidate, Want, Whom
from kornel.core.preemption.monitor.selection.figures import Amounts, QueueFigures
from kornel.core.preemption.monitor.selection.passages import list_bounds
from kornel.core.preemption.monitor.selection.round import Round
from kornel.core.preemption.run_times import is_impatient, last_end
from kornel.core.preemption.walk import Candidate as Walked
from kornel.core.preemption.walk import Effects, Walk, walk_again

AGAIN_A_ROUND: Final = 50_000
"""The most candidates that are looked at in one round in walks that begin again."""


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
    """

    def __init__(self, run: Round, rooms: NodeRooms, going: dict[Node, list[Candidate]]) -> None:
        self._run = run
        self._rooms = rooms
        self._going = going
        self.promised: Final[set[Node]] = set()
        """The nodes where an ask with devices has a place in this round. Each gets one such ask, because what
        is left of its devices is known only when some are kept for that ask."""
        self._again = AGAIN_A_ROUND

    def choose_victims(
        self, want: Want, node: Node, candidates: Iterable[Candidate], whom: Whom, *, anywhere: bool = False
    ) -> list[Candidate] | None:
        """Returns those of *candidates*, in order, that have to leave so that *want* runs on *node*; ``None``: all are
        not enough.

        *anywhere*: the node has room already, so the candidates may be on any node.
        """
        if not is_usable(node, want.ask) or not node.could_hold(want.pairs) or not self.may_share(want, node):
            return None
        served = self.has_devices(want, node)
        if not served and (node.devices is None or node in self.promised):
            return None
        room = self._rooms.room_for(node, want.ask)
        lack = {t: amount - room[t] for t, amount in want.pairs if amount > room[t]}
        if not lack and not want.needs and served:
            return []
        case = _Case(self._run, want, node, lack, whom, served=served)
        chosen = self._walk(case, candidates, anywhere=anywhere)
        if chosen is None:
            return None
        freed: Amounts = {}
        for candidate in chosen:
            for t, amount in candidate.pairs:
                freed[t] = freed.get(t, 0) + amount
        wanted = {t for t, _ in want.pairs} if not served else {*lack, *(t for _, need in want.needs for t in need)}
        return chosen if self._run.selection.fits(freed, wanted) else None

    def _walk(self, case: _Case, candidates: Iterable[Candidate], *, anywhere: bool) -> list[Candidate] | None:
        """Returns the victims of the walk over *candidates*, on growing sets of classes (preemption.md B.6)."""

        def lacks_devices(victims: Sequence[Walked]) -> bool:
            return not self.has_devices(case.want, case.node, [of[victim[3]] for victim in victims])

        of: dict[str, Candidate] = {}
        pool: list[Walked] = []
        lacks = lacks_devices if case.devices is not None else None
        walk = Walk(case.needs, case.rooms, lacks=lacks)
        met = walk.take_from(self._collect(case, candidates, pool, of, anywhere=anywhere))
        if not walk.kept:
            return [of[victim[3]] for victim in walk.give_back()] if met else None
        # A milder class may be enough if it begins again.
        part: list[Walked] = []
        for _, alike in groupby(pool, key=lambda walked: of[walked[3]].reluctance):
            part += alike
            turns = iter(range(most := 1 + self._again // len(part)))
            found = walk_again(case.needs, case.rooms, part, lacks=lacks, turns=turns)
            self._again -= (next(turns, most) - 1) * len(part)
            if found is not None:
                return [of[victim[3]] for victim in found]
        return None

    def _collect(
        self,
        case: _Case,
        candidates: Iterable[Candidate],
        pool: list[Walked],
        of: dict[str, Candidate],
        *,
        anywhere: bool,
    ) -> Iterator[Walked]:
        """Yields those of *candidates* who may leave for the ask of *case*, and adds them to *pool*."""
        for candidate in self._list_free(case, candidates, anywhere=anywhere):
            allocation = candidate.allocation
            effects = case.effects_of(
                candidate, frees=case.devices is not None and self._frees_devices(case, candidate)
            )
            if effects is None:
                continue
            walked = (0, 0, 0, allocation.key, allocation, effects)
            of[allocation.key] = candidate
            pool.append(walked)
            yield walked

    def _list_free(self, case: _Case, candidates: Iterable[Candidate], *, anywhere: bool) -> Iterator[Candidate]:
        """Yields those of *candidates* whom laws 6 and 7 and minimum run times let go for the ask of *case*. In the
        late turn, an ask that has waited for long also gets whom only these protect: last, those with least time left
        first."""
        run, want, node = self._run, case.want, case.node
        limits: dict[QueueFigures, int | None] = {}
        guards: dict[QueueFigures, Queue | None] = {}
        now_ns, protected = run.view.now_ns, list[tuple[int, str, Candidate]]()
        for candidate in candidates:
            if candidate.taken or (candidate.node is not node and not anywhere):
                continue
            leaf = candidate.leaf
            if leaf not in limits:
                limits[leaf] = run.passage.highest_priority(want.leaf, want.ask.spec.priority, leaf)
                guards[leaf] = run.passage.guard_of(want.leaf, leaf)
            limit, guard = limits[leaf], guards[leaf]
            if limit is None or candidate.allocation.spec.priority > limit:
                continue
            until_ns = 0 if guard is None else last_end(candidate.members, guard)
            if until_ns <= now_ns:
                yield candidate
            else:
                protected.append((until_ns, candidate.allocation.key, candidate))
        if run.late and protected and is_impatient(want.ask, now_ns):
            yield from [candidate for _, _, candidate in sorted(protected, key=lambda entry: entry[:2])]

    def judge_choice(self, want: Want, node: Node, order: Iterable[Candidate], chosen: Sequence[Candidate]) -> None:
        """Has the place of *want*, for which *chosen* of the candidates *order* leave, judged before it is counted.

        Whoever was offered in exchange goes whatever its class (E.7).
        """
        run = self._run
        judge, offered, selection = run.judge, run.memory.offered, run.selection
        milder = any(candidate.reluctance or len(candidate.members) > 1 for candidate in chosen)
        if judge is not None and milder and not any(candidate.allocation.key in offered for candidate in chosen):
            place = Place(want.ask, node, tuple(member for candidate in chosen for member in candidate.members))
            tasks = [candidate.allocation for candidate in order if candidate.node is node]
            broken = judge.judge_place(selection.places, place, tasks, self)
            selection.broken.update((want.ask, violation) for violation in broken)

    def gives_amount(self, task: Allocation, t: int) -> bool:
        """Tells whether *task* may be taken because its leaf has yet to give up something of type *t*."""
        run, leaf = self._run, self._run.picture.of.get(task.queue)
        if leaf is None or leaf.disabled or leaf.queue in run.spared:
            return False
        return run.gives_up(leaf, t) and run.may_go(task)

    def allows_loss(self, tasks: Sequence[Allocation]) -> bool:
        """Tells whether the pace, derived guarantees and the reserve of originators let *tasks* leave together."""
        run, of = self._run, self._run.picture.of
        if not run.selection.has_room(tuple(sum_amounts(tasks).items())):
            return False
        for leaf in {of[task.queue]: None for task in tasks}:
            mine = [task for task in tasks if task.queue is leaf.queue]
            guaranteed = leaf.queue.guaranteed if run.declared else leaf.guaranteed
            for t, amount in sum_amounts(mine).items():
                if leaf.net[t] - leaf.going.get(t, 0) - amount < guaranteed.get(t, 0):
                    return False
                originating = sum_amounts(task for task in mine if task.spec.originator).get(t, 0)
                if originating and run.spare.get(leaf, {}).get(t, 0) < originating:
                    return False
        return True

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

    def _frees_devices(self, case: _Case, candidate: Candidate) -> bool:
        """Tells whether *candidate* holds a part of a device that the ask of *case* lacks and could use, and its leaf
        has to give something up that it holds."""
        request, devices = case.devices, case.node.devices
        if request is None or devices is None:
            return False
        if case.whom is not Whom.ANYBODY and not any(self._run.gives_up(candidate.leaf, t) for t, _ in candidate.pairs):
            return False
        usable = [device for device in devices if device.share_for(request)]
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


class _Case:
    """The needs of an ask on a node and inside queues that are full, the amounts that the laws leave to be taken, and
    the contribution of each candidate.

    needs    the amounts to be freed: by type on the node, by type in queues, and 1 for devices that are lacking
    rooms    the amounts that may still leave queues, found as candidates need them
    devices  the devices that the ask lacks; ``None``: it lacks none
    """

    def __init__(self, run: Round, want: Want, node: Node, lack: Amounts, whom: Whom, *, served: bool) -> None:
        self._run: Final = run
        self.want: Final = want
        self.node: Final = node
        self.whom: Final = whom
        self.devices: Final = None if served else want.ask.shape.devices
        needs: list[tuple[tuple[QueueFigures | None, int], int]] = [((None, t), amount) for t, amount in lack.items()]
        needs += [((queue, t), amount) for queue, need in want.needs for t, amount in need.items()]
        self._freed_in: Final = [key for key, _ in needs]
        """Of each need, the queue, or ``None`` for the node, and the type."""
        self.needs: Final = [amount for _, amount in needs] + ([1] if self.devices is not None else [])
        self.rooms: Final[list[int]] = []
        self._room_at: dict[tuple[object, ...], int] = {}
        self._known: dict[tuple[QueueFigures, Pairs, Pairs, Pairs], Effects | None] = {}

    def effects_of(self, candidate: Candidate, *, frees: bool) -> Effects | None:
        """Returns the effects of taking *candidate*; ``None``: it would not help, or must stay in any case. *frees*: it
        gives back devices that the ask lacks."""
        leaf, pairs = candidate.leaf, candidate.pairs
        here = candidate.here if candidate.node is self.node else ()
        originating = candidate.originating if candidate.reluctance >= ORIGINATORS else ()
        alike = leaf, pairs, here, originating
        if alike not in self._known:
            self._known[alike] = self._find_effects(*alike)
        known = self._known[alike]
        if known is not None and frees:
            # Whoever holds other devices is not alike.
            return Effects(known.gains, known.uses, (*known.serves, len(self.needs) - 1))
        return known if known is not None and known.serves else None

    def _find_effects(self, leaf: QueueFigures, pairs: Pairs, here: Pairs, originating: Pairs) -> Effects | None:
        uses = tuple(self._list_uses(leaf, pairs, originating))
        if (originating and self.whom is not Whom.GIVING) or any(self.rooms[room] < amount for room, amount in uses):
            return None
        gains = [
            (i, t, amount)
            for i, (queue, needed) in enumerate(self._freed_in)
            for t, amount in (here if queue is None else pairs if queue in leaf.lineage else ())
            if t == needed
        ]
        gives = self._run.gives_up
        serves = tuple([i for i, t, _ in gains if self.whom is Whom.ANYBODY or gives(leaf, t)])
        return Effects(tuple([(i, amount) for i, _, amount in gains]), uses, serves)

    def _list_uses(self, leaf: QueueFigures, pairs: Pairs, originating: Pairs) -> Iterator[tuple[int, int]]:
        """Yields what *pairs* of *leaf* take of the amounts that guarantees leave, or what *leaf* has to give up, and
        what *originating* takes of its originators."""
        run, amounts = self._run, dict(pairs)
        bounds = list_bounds(leaf, pairs, self.want.leaf, self.want.pairs, declared=run.declared)
        yield from [(self._find_room(room, queue, t), amounts[t]) for queue, t, room in bounds]
        if self.whom is Whom.WITHIN:
            left = run.left.get(leaf, {})
            yield from [(self._find_room(left.get(t, 0), leaf, t, "share"), amount) for t, amount in pairs]
        spare = run.spare.get(leaf, {})
        yield from [(self._find_room(spare.get(t, 0), leaf, t, "originators"), amount) for t, amount in originating]

    def _find_room(self, amount: int, *of: object) -> int:
        """Returns the index of the room *of* something, which holds *amount* when it is first asked for."""
        at = self._room_at.setdefault(of, len(self.rooms))
        if at == len(self.rooms):
            self.rooms.append(amount)
        return at


class NodeRooms:
    """The amounts by node that planned places may still use; ``given_back``: what reservations that are gone
    leave to others, by the key of their ask."""

    def __init__(self) -> None:
        self.given_back: Final[dict[str, list[int]]] = {}
        self._rooms: Final[dict[Node, list[int]]] = {}
        """The room of each node that is free once all victims have left and the plan is carried out."""

    def room_for(self, node: Node, ask: Allocation) -> list[int]:
        """Returns what *ask* could use of *node* once the plan is carried out, including its own reservation."""
        room = self.left_over(node)
        own = ask.reservation
        if own is None or own.node is not node or ask.key in self.given_back:
            return room
        return [
            have + more - without for have, more, without in zip(room, node.room_without(own), node.beside, strict=True)
        ]

    def left_over(self, node: Node) -> list[int]:
        """Returns the room of *node* that is not held once victims have left and the plan is carried out."""
        room = self._rooms.get(node)
        if room is None:
            room = self._rooms[node] = list(node.beside)
        return room
