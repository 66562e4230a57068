"""Where waiting asks get their places: for each ask a node, and the victims there whose leaving lets it run.

Candidates are looked at in the order in which they should go. The first node on which those looked at so far make room
for an ask is taken, so that nobody goes whom an equal place could have spared; then whoever is not needed is left out.
Asks of leaves that are short of their share are served in turns, the least served leaf first. Rules: preemption.md E.5.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from enum import Enum
from heapq import heappop, heappush, merge
from math import floor
from operator import attrgetter
from typing import Final

from core.domain.settings import GuaranteeMode
from core.model.allocations import Allocation, Reservation
from core.model.nodes import Node
from core.model.shapes import Pairs, Shape
from core.policies.application_order import application_key
from core.preemption.monitor.figures import Amounts, QueueFigures, waits_for_room
from core.preemption.monitor.passages import admits, leave
from core.preemption.monitor.plan import Place
from core.preemption.monitor.round import Round, positive
from core.preemption.victim_index import reluctance

LOOKS_PER_TRY: Final = 5
"""Looks at an allocation that can be taken in the time of one try to make room on a node."""
LOOKS_A_PIECE: Final = 500
_SCALE: Final = 10**9
MOST_COMBINED: Final = 40
"""Tasks of one node of which sets are tried."""
SETS_A_NODE: Final = 500
SETS_A_ROUND: Final = 20_000

_ORIGINATORS: Final = 2
"""The class from which on tasks are originators."""

_Amounts = dict[int, int]
_Search = tuple[object, ...]
_order_of: Final = attrgetter("order")


class Whom(Enum):
    """Who may be taken for an ask."""

    GIVING = 1
    """Tasks of leaves that are to give something up; the last one may be more than that."""
    WITHIN = 2
    """The same, but nothing more than they are to give up."""
    ANYBODY = 3
    """Tasks of any leaf that the laws let go."""


class Candidate:
    """An allocation that may have to leave, with its class as a victim."""

    __slots__ = ("allocation", "kind", "leaf", "node", "pairs", "taken")

    def __init__(self, allocation: Allocation, leaf: QueueFigures, node: Node) -> None:
        self.allocation: Final = allocation
        self.leaf: Final = leaf
        self.node: Final = node
        self.pairs: Final = allocation.shape.pairs
        self.kind: Final = reluctance(allocation)
        self.taken = False


class Want:
    """An ask to be placed, with what it needs freed inside queues that are full: (queue, amounts by type)."""

    __slots__ = ("ask", "leaf", "needs", "pairs")

    def __init__(self, ask: Allocation, leaf: QueueFigures, needs: list[tuple[QueueFigures, _Amounts]]) -> None:
        self.ask: Final = ask
        self.leaf: Final = leaf
        self.pairs: Final = ask.shape.pairs
        self.needs: Final = needs


class _Progress:
    """How far the search for one kind of ask has come among the candidates."""

    __slots__ = ("at", "changed", "over", "seen")

    def __init__(self) -> None:
        self.at = 0
        self.changed = 0
        self.over = False
        """There is no place for such an ask any more."""
        self.seen: dict[Node, list[Candidate]] = {}


class Planner:
    """Finds places for the asks of leaves that are short of their share."""

    def __init__(self, run: Round) -> None:
        self._run = run
        self._rooms: dict[Node, list[int]] = {}
        """By node, what is free once everybody who was asked to has left and everything planned has happened."""
        self._candidates: dict[str, Candidate] = {}
        self._waiting: dict[QueueFigures, list[Allocation]] = {}
        self._places: dict[str, None] = {}
        """Keys of asks that have one."""
        self._crossing = False
        """Somebody leaves one node for an ask on another."""
        self._going: dict[Node, list[Candidate]] = {}
        """By node, who is to leave."""
        self._changed: list[Node] = []
        self._given_back: dict[str, None] = {}
        """Keys of asks whose reservations were given back in this round."""
        self._spare: dict[QueueFigures, Amounts] = {}
        """By leaf, the originators that may still be taken, by type."""
        self._accounts: dict[object, Amounts] = {}
        self._elsewhere: dict[QueueFigures, list[Allocation]] | None = None
        self._sets = SETS_A_ROUND
        """How many sets of victims may still be tried in this round where the first to go do not do."""
        self._strict = run.view.guarantee_mode is GuaranteeMode.STRICT
        self._small: dict[tuple[QueueFigures, Shape], bool] = {}
        """By leaf and size, whether such an ask is no larger than what entitles it."""

    def candidate(self, allocation: Allocation) -> Candidate | None:
        """*allocation* as a candidate; ``None`` if its leaf or its node is not to be touched."""
        known = self._candidates.get(allocation.key)
        if known is None:
            leaf, node = self._run.picture.of.get(allocation.queue), allocation.node
            if leaf is None or node is None or leaf.disabled or leaf.queue in self._run.spared:
                return None
            known = self._candidates[allocation.key] = Candidate(allocation, leaf, node)
        return known

    def give_back(self, reservation: Reservation) -> None:
        """What *reservation* holds is free for others from here on: it will be dropped, or its ask runs elsewhere."""
        node = reservation.node
        if reservation.ask.key in self._given_back:
            return
        self._given_back[reservation.ask.key] = None
        room = self._base(node)
        for t, (without, beside) in enumerate(zip(node.room_without(reservation), node.beside, strict=True)):
            room[t] += without - beside
        self._changed.append(node)

    def finish(self) -> Generator[int, None, None]:
        """Leave out victims whose room the others on the same node leave over for all asks that are placed there."""
        selection = self._run.selection
        by_node: dict[Node, list[Place]] = {node: [] for node in self._changed}
        if not by_node or self._crossing:
            return
        if any(amount > selection.limits.get(t, 0) for t, amount in selection.selected.items()):
            return  # One place is more than a round may select: it has to stay the first.
        for place in selection.places:
            if place.node in by_node:
                by_node[place.node].append(place)
        yield len(selection.places) // LOOKS_PER_TRY
        for node, places in by_node.items():
            if sum(bool(place.victims) for place in places) > 1:
                shared = _rearranged(places, self._base(node))
                if shared is not None:
                    selection.rearrange(places, shared)
                yield LOOKS_PER_TRY * len(places)

    def spare_originators(self, leaf: QueueFigures, originators: Iterable[Allocation]) -> None:
        """Of *originators*, all there are in *leaf*, so much stays as its reserve for them (E.5)."""
        spare: Amounts = {}
        for victim in originators:
            for t, amount in victim.shape.pairs:
                spare[t] = spare.get(t, 0) + amount
        for t in spare:
            spare[t] -= floor(self._run.settings.originator_reserve * leaf.guaranteed.get(t, 0))
        self._spare[leaf] = spare

    def resume(self) -> Generator[int, None, None]:
        """Plan again what the last round planned, as far as that still stands: notices keep their victims.

        Where less is to be given up than before, whose work is saved and whose application is prepared goes first.
        """
        memory = self._run.memory
        places, memory.places = memory.places, []
        if memory.checkpoints or memory.accepted:
            places.sort(key=lambda place: sum(not self._is_prepared(victim) for victim in place.victims))
        exchanging = {
            allocation.application
            for allocation in (self._run.view.requests.get(key) for key in self._run.memory.offered)
            if allocation is not None
        }
        for at, place in enumerate(places, 1):
            if at % 32 == 0:
                yield 32 * 2 * LOOKS_PER_TRY
            if not place.victims or any(victim.application in exchanging for victim in place.victims):
                continue
            want = self._wanted(place.ask)
            if want is None or not self._plan_again(want, place):
                memory.places.append(place)
        yield len(places)

    def _plan_again(self, want: Want, place: Place) -> bool:
        """Give *want* the *place* it had, by those of the same victims that it needs."""
        run, node = self._run, place.node
        kept: list[Candidate] = []
        for victim in place.victims:
            candidate = self.candidate(victim) if victim.key in run.memory.notified and run.may_go(victim) else None
            if candidate is None:
                return False
            kept.append(candidate)
        one = kept[0]
        if (
            len(kept) == 1
            and one.node is node
            and self._usable(node, want.ask)
            and self._equal_does(want, one, self._room(node, want.ask))
        ):
            self.commit(want, node, kept)
            return True
        anywhere = any(candidate.node is not node for candidate in kept)
        chosen = self.victims(want, node, kept, Whom.GIVING, anywhere=anywhere)
        if chosen:
            self.commit(want, node, chosen)
        return bool(chosen)

    def _is_prepared(self, victim: Allocation) -> bool:
        return victim.key in self._run.memory.accepted or victim.key in self._run.memory.checkpoints

    def _wanted(self, ask: Allocation) -> Want | None:
        """*ask*, if it still waits and its leaf is still short of what it asks for."""
        leaf = self._run.picture.of.get(ask.queue)
        if leaf is None or ask.key in self._places or not self._may_wait(ask) or not self._is_owed(leaf, ask):
            return None
        return self.want(ask, leaf)

    def fill(self, ranked: Sequence[Candidate]) -> Generator[int, None, None]:
        """Places for asks in turns, by victims from *ranked*, in this order."""
        run = self._run
        searches: dict[_Search, _Progress] = {}
        turns: list[tuple[int, int, str, QueueFigures]] = []
        positions: dict[QueueFigures, int] = {}
        for leaf in run.short:
            yield from self._gather(leaf)
            heappush(turns, self._turn(leaf))
        spent = 0
        while turns:
            leaf = heappop(turns)[3]
            waiting, at = self._waiting[leaf], positions.get(leaf, 0)
            placed = False
            while at < len(waiting) and not placed and positive(run.short[leaf]):
                ask = waiting[at]
                at += 1
                spent += 1
                if ask.key in self._places or not self._is_owed(leaf, ask):
                    continue
                want = self.want(ask, leaf)
                search = self._search_of(want)
                progress = searches.get(search)
                if progress is None:
                    progress = searches[search] = _Progress()
                elif progress.over:
                    if run.left:
                        continue
                    break  # Only what is left over on nodes is still given away.
                placed = yield from self._place(want, ranked, progress)
                if not placed:
                    progress.over = True
                spent += 2 * LOOKS_PER_TRY
                if spent >= LOOKS_A_PIECE:
                    yield spent
                    spent = 0
            positions[leaf] = at
            if placed:
                heappush(turns, self._turn(leaf))
        yield spent

    def _turn(self, leaf: QueueFigures) -> tuple[int, int, str, QueueFigures]:
        """Returns who is served first: the highest priority, then the least served for its guarantee, then by path."""
        planned, share = self._run.planned_for(leaf), _SCALE
        for t in self._run.short[leaf]:
            guaranteed = leaf.guaranteed.get(t)
            if guaranteed is not None:
                share = min(share, (leaf.used[t] + planned.get(t, 0)) * _SCALE // guaranteed)
        return (-leaf.priority, share, leaf.queue.path, leaf)

    def _is_owed(self, leaf: QueueFigures, ask: Allocation) -> bool:
        """Tells whether *leaf* is short of what *ask* asks for, and of nothing it asks for has its share already."""
        short = self._run.short.get(leaf)
        if not short:
            return False
        shape = ask.shape
        small = self._small.get((leaf, shape))
        if small is None:
            small = all(amount <= self._most(leaf, t) for t, amount in shape.pairs if t in short)
            self._small[leaf, shape] = small
        if not small:
            return False
        owed = False
        for t, amount in shape.pairs:
            lacking = short.get(t, 0)
            if lacking > 0:
                if self._strict and amount > lacking:
                    return False
                owed = True
            elif t in (leaf.queue.guaranteed if self._run.declared else leaf.guaranteed):
                return False
        return owed and (not ask.application.accounts or self._within_limits(ask))

    @staticmethod
    def _most(leaf: QueueFigures, t: int) -> int:
        """The largest ask that a guarantee entitles to: as much as the lowest one on the path (law 4)."""
        for figures in leaf.lineage:
            declared = figures.queue.guaranteed.get(t)
            if declared is not None:
                return declared
        return leaf.queue.lineage()[-1].max.get(t, 0)

    def _within_limits(self, ask: Allocation) -> bool:
        for account in ask.application.accounts:
            planned = self._accounts.get(account, {})
            for t, amount in ask.shape.pairs:
                most = account.limit.max.get(t)
                if most is not None and account.used[t] + planned.get(t, 0) + amount > most:
                    return False
        return True

    def _may_wait(self, ask: Allocation) -> bool:
        """Tells whether *ask* waits for something that preemption may give it."""
        if ask.node is not None or ask.replaces is not None or self._run.view.requests.get(ask.key) is not ask:
            return False
        if not waits_for_room(ask):
            return False
        group = ask.group
        if group is not None:
            # A group that sits in no waiting room is about to be tried: nobody goes for it yet.
            return group.parked_at is not None and not group.kept_back
        if ask.held_on is not None or ask.pool is not None:
            return False
        return ask.reservation is not None or ask.refused_on is not None

    def _gather(self, leaf: QueueFigures) -> Generator[int, None, None]:
        """The waiting asks of *leaf*, in the order in which they are served."""
        if leaf in self._waiting:
            return
        found: list[Allocation] = []
        others: dict[object, list[Allocation]] = {}
        for ask in self._waiting_elsewhere().get(leaf, ()):
            others.setdefault(ask.application, []).append(ask)
        for application in sorted(leaf.queue.applications.values(), key=application_key):
            # A group that sits in no waiting room is about to be tried: nobody goes for it yet.
            lists = [
                [ask for ask in group.asks() if ask.spec.allow_preempt_other]
                for group in application.groups.values()
                if not group.kept_back and not group.required_node and group.parked_at is not None
            ]
            if application in others:
                lists.append(sorted(others[application], key=_order_of))
            found += lists[0] if len(lists) == 1 else merge(*lists, key=_order_of)
            yield 1 + len(found) // 2
        self._waiting[leaf] = found

    def _waiting_elsewhere(self) -> dict[QueueFigures, list[Allocation]]:
        """By leaf, asks that wait with a node kept for them, or because the shim refused them everywhere."""
        if self._elsewhere is None:
            self._elsewhere = {}
            view = self._run.view
            asks = [reservation.ask for reservation in view.reservations.values() if reservation.by_age]
            asks += [
                ask
                for rooms in view.refused.values()
                for room in rooms.values()
                for ask in room
                if ask.reservation is None
            ]
            for ask in asks:
                leaf = self._run.picture.of.get(ask.queue)
                if leaf is not None and self._may_wait(ask):
                    self._elsewhere.setdefault(leaf, []).append(ask)
        return self._elsewhere

    def want(self, ask: Allocation, leaf: QueueFigures) -> Want:
        """Returns what it takes to place *ask*."""
        needs: list[tuple[QueueFigures, _Amounts]] = []
        for figures in leaf.capped:
            ceilings = figures.queue.max
            need: _Amounts = {}
            for t, amount in ask.shape.pairs:
                most = ceilings.get(t)
                if most is not None:
                    beyond = figures.used[t] + figures.coming.get(t, 0) - figures.going.get(t, 0) + amount - most
                    if beyond > 0:
                        need[t] = min(amount, beyond)
            if need:
                needs.append((figures, need))
        return Want(ask, leaf, needs)

    def _search_of(self, want: Want) -> _Search:
        """The same for asks that the same search serves."""
        ask, leaf = want.ask, want.leaf
        reserved = refused = None
        if ask.reservation is not None:
            reserved = ask.reservation.node
        if ask.refused or (ask.extras is not None and ask.stuck):
            refused = frozenset((*(ask.refused or ()), *ask.stuck.values()))
        # A leaf that gives up one type while it is short of another one looks past its own tasks.
        own = leaf if want.needs or leaf in self._run.left else None
        return (ask.shape, ask.spec.priority, refused, reserved, own, self._run.passage.outlook(leaf))

    def _place(self, want: Want, ranked: Sequence[Candidate], progress: _Progress) -> Generator[int, None, bool]:
        """Give *want* the first place that candidates looked at so far, or the next ones, make room for."""
        if want.needs:
            node = self._node_with_room(want)
            if node is not None:
                chosen = self.victims(want, node, ranked, Whom.GIVING, anywhere=True)
                yield len(self._run.picture.queues) + len(ranked) // LOOKS_PER_TRY
                if chosen is not None:
                    self.commit(want, node, chosen)
                return chosen is not None
        seen = progress.seen
        while progress.changed < len(self._changed):
            node = self._changed[progress.changed]
            progress.changed += 1
            if self._try(want, node, seen.get(node, ())):
                return True
        looked_at = 0
        while progress.at < len(ranked) and self._run.left:
            candidate = ranked[progress.at]
            progress.at += 1
            looked_at += 1
            if looked_at >= LOOKS_A_PIECE:
                yield looked_at * 2
                looked_at = 0
            if candidate.taken or candidate.leaf not in self._run.left:
                continue
            node = candidate.node
            there = seen.get(node)
            if there is None:
                there = seen[node] = []
            there.append(candidate)
            if self._try(want, node, there):
                return True
        return False

    def _try(self, want: Want, node: Node, there: Sequence[Candidate]) -> bool:
        """Place *want* on *node* if those who are *there* make room."""
        if not self._usable(node, want.ask):
            return False
        room = self._room(node, want.ask)
        if there and self._equal_does(want, there[-1], room):
            self.commit(want, node, there[-1:])
            return True
        for t, amount in want.pairs:
            missing = amount - room[t]
            if missing > 0:
                for candidate in there:
                    if not candidate.taken:
                        for u, freed in candidate.pairs:
                            if u == t:
                                missing -= freed
                if missing > 0:
                    return False
        chosen = self.victims(want, node, there, Whom.GIVING)
        if chosen is None:
            return False
        self.commit(want, node, chosen)
        return True

    def _equal_does(self, want: Want, candidate: Candidate, room: list[int]) -> bool:
        """Whether *candidate*, of the same size as *want*, is all that has to leave: the most frequent case, in short.

        Whatever is not so simple is left to :meth:`victims`.
        """
        pairs, run = want.pairs, self._run
        if candidate.pairs is not pairs or want.needs or candidate.kind >= _ORIGINATORS or candidate.taken:
            return False
        if not self._shares(want, candidate.node):
            return False
        helps = False
        for t, amount in pairs:
            there = room[t]
            if there < 0:
                return False
            if there < amount and not helps:
                helps = run.gives(candidate.leaf, t)
        if not helps or not run.selection.has_room(pairs):
            return False
        limit = run.passage.highest(want.leaf, want.ask.spec.priority, candidate.leaf)
        if limit is None or candidate.allocation.spec.priority > limit:
            return False
        return admits(candidate.leaf, pairs, want.leaf, pairs, declared=run.declared)

    def _node_with_room(self, want: Want) -> Node | None:
        """The first node that has room for *want* as it is: only a queue on its path is full."""
        if want.ask.shape.no_room:
            return None
        for node in self._run.view.nodes.values():
            if self._usable(node, want.ask):
                room = self._room(node, want.ask)
                if all(room[t] >= amount for t, amount in want.pairs):
                    return node
        return None

    def _room(self, node: Node, ask: Allocation) -> list[int]:
        """What *ask* could use of *node* once everything planned has happened, what it holds there itself included."""
        room = self._base(node)
        own = ask.reservation
        if own is None or own.node is not node or ask.key in self._given_back:
            return room
        return [
            have + more - without for have, more, without in zip(room, node.room_without(own), node.beside, strict=True)
        ]

    def _base(self, node: Node) -> list[int]:
        """Returns what nobody holds of *node* once victims have left and everything planned has happened."""
        room = self._rooms.get(node)
        if room is None:
            room = self._rooms[node] = list(node.beside)
        return room

    def _shares(self, want: Want, node: Node) -> bool:
        """Tells whether *want* may use what is left over there: it has to outrank all who are to leave (law 6)."""
        highest = self._run.passage.highest
        for candidate in self._going.get(node, ()):
            limit = highest(want.leaf, want.ask.spec.priority, candidate.leaf)
            if limit is None or candidate.allocation.spec.priority > limit:
                return False
        return True

    @staticmethod
    def _usable(node: Node, ask: Allocation) -> bool:
        """Whether *node* takes *ask* at all: in service, not refused by the shim, no victim of the ask stuck there."""
        if not node.schedulable or (ask.refused and node.node_id in ask.refused):
            return False
        return ask.extras is None or node.node_id not in ask.stuck.values()

    def victims(
        self, want: Want, node: Node, candidates: Iterable[Candidate], whom: Whom, *, anywhere: bool = False
    ) -> list[Candidate] | None:
        """Who of *candidates*, the first first, has to leave so that *want* runs on *node*; ``None``: they do not do.

        *anywhere*: the node has room as it is, and they need not be there.
        """
        if not self._usable(node, want.ask) or not node.could_hold(want.pairs) or not self._shares(want, node):
            return None
        room = self._room(node, want.ask)
        run = self._run
        run = self._run
        lack = {t: amount - room[t] for t, amount in want.pairs if amount > room[t]}
        if not lack and not want.needs:
            return []
        needs = [(queue, dict(need)) for queue, need in want.needs]
        wanted: _Amounts = dict(lack)
        for _, need in needs:
            wanted.update(need)
        chosen: list[Candidate] = []
        spare: dict[QueueFigures, Amounts] = {}
        covered = refused = False
        for candidate in candidates:
            if candidate.taken or (candidate.node is not node and not anywhere):
                continue
            if not self._helps(candidate, lack, needs, whom, anywhere=anywhere):
                continue
            leaf, pairs = candidate.leaf, candidate.pairs
            limit = run.passage.highest(want.leaf, want.ask.spec.priority, leaf)
            if limit is None or candidate.allocation.spec.priority > limit:
                continue
            if candidate.kind >= _ORIGINATORS:
                if whom is not Whom.GIVING:
                    continue
                if leaf not in spare:
                    spare[leaf] = dict(self._spare.get(leaf, {}))
                if not all(spare[leaf].get(t, 0) > 0 for t, _ in pairs):
                    continue
            if whom is Whom.WITHIN and not self._whole(leaf, pairs, chosen):
                continue
            if not admits(leaf, pairs, want.leaf, want.pairs, declared=run.declared):
                refused = True
                continue
            leave(leaf, pairs)
            chosen.append(candidate)
            _lower(candidate, lack, needs, 1)
            if candidate.kind >= _ORIGINATORS:
                for t, amount in pairs:
                    spare[leaf][t] -= amount
            if _met(lack, needs):
                covered = True
                break
        for candidate in chosen:
            leave(candidate.leaf, candidate.pairs, -1)
            if not covered:
                _lower(candidate, lack, needs, -1)
        if not covered and refused and whom is not Whom.WITHIN and not anywhere:
            # Somebody who went first stood in the way of who is needed: their guarantees bear only so much.
            chosen = self._combine(want, node, candidates, lack, needs, whom)
            covered = bool(chosen)
        if not covered:
            return None
        if len(chosen) > 1:
            _leave_out(chosen, lack, needs)
        freed: _Amounts = {}
        for candidate in chosen:
            for t, amount in candidate.pairs:
                freed[t] = freed.get(t, 0) + amount
        return chosen if run.selection.fits(freed, wanted) else None

    def _combine(
        self,
        want: Want,
        node: Node,
        candidates: Iterable[Candidate],
        lack: _Amounts,
        needs: list[tuple[QueueFigures, _Amounts]],
        whom: Whom,
    ) -> list[Candidate]:
        """The first set of ordinary or opted-out *candidates* that makes room for *want* lawfully, in order of sets.

        Tries so many sets of one node, and so many in a round: what is left lowered is what is still lacking.
        """
        run = self._run
        usable: list[Candidate] = []
        for candidate in candidates:
            if candidate.taken or candidate.node is not node or candidate.kind >= _ORIGINATORS:
                continue
            limit = run.passage.highest(want.leaf, want.ask.spec.priority, candidate.leaf)
            if limit is not None and candidate.allocation.spec.priority <= limit:
                usable.append(candidate)
        del usable[MOST_COMBINED:]
        chosen: list[Candidate] = []
        sets = min(SETS_A_NODE, self._sets)
        self._sets -= sets

        def cover(at: int) -> bool:
            nonlocal sets
            if _met(lack, needs):
                return True
            if at == len(usable) or sets <= 0:
                return False
            sets -= 1
            candidate = usable[at]
            leaf, pairs = candidate.leaf, candidate.pairs
            if self._helps(candidate, lack, needs, whom, anywhere=False) and admits(
                leaf, pairs, want.leaf, want.pairs, declared=run.declared
            ):
                leave(leaf, pairs)
                chosen.append(candidate)
                _lower(candidate, lack, needs, 1)
                found = cover(at + 1)
                leave(leaf, pairs, -1)
                if found:
                    return True
                chosen.pop()
                _lower(candidate, lack, needs, -1)
            return cover(at + 1)

        found = cover(0)
        self._sets += max(0, sets)
        return chosen if found else []

    def _helps(
        self,
        candidate: Candidate,
        lack: _Amounts,
        needs: list[tuple[QueueFigures, _Amounts]],
        whom: Whom,
        *,
        anywhere: bool,
    ) -> bool:
        leaf, gives = candidate.leaf, self._run.gives
        for t, _ in candidate.pairs:
            lacking = not anywhere and lack.get(t, 0) > 0
            if not (lacking or needs) or (whom is not Whom.ANYBODY and not gives(leaf, t)):
                continue
            if lacking:
                return True
            for queue, need in needs:
                if need.get(t, 0) > 0 and queue in leaf.lineage:
                    return True
        return False

    def _whole(self, leaf: QueueFigures, pairs: Pairs, chosen: list[Candidate]) -> bool:
        """Tells whether *leaf* is to give up all of *pairs* on top of what is *chosen*."""
        left = dict(self._run.left.get(leaf, {}))
        for candidate in chosen:
            if candidate.leaf is leaf:
                for t, amount in candidate.pairs:
                    left[t] = left.get(t, 0) - amount
        return all(left.get(t, 0) >= amount for t, amount in pairs)

    def commit(self, want: Want, node: Node, chosen: Sequence[Candidate]) -> None:
        """*want* runs on *node* once *chosen* have left."""
        self._places[want.ask.key] = None
        if want.ask.reservation is not None:
            self.give_back(want.ask.reservation)
        room = self._base(node)
        for t, amount in want.pairs:
            room[t] -= amount
        for candidate in chosen:
            candidate.taken = True
            self._going.setdefault(candidate.node, []).append(candidate)
            there = room if candidate.node is node else self._base(candidate.node)
            for t, amount in candidate.pairs:
                there[t] += amount
            spare = self._spare.get(candidate.leaf) if candidate.kind >= _ORIGINATORS else None
            if spare is not None:
                for t, amount in candidate.pairs:
                    spare[t] -= amount
            if candidate.node is not node:
                self._crossing = True
                self._changed.append(candidate.node)
        for account in want.ask.application.accounts:
            planned = self._accounts.setdefault(account, {})
            for t, amount in want.pairs:
                planned[t] = planned.get(t, 0) + amount
        place = Place(want.ask, node, tuple(candidate.allocation for candidate in chosen))
        self._run.commit(place, want.leaf, [candidate.leaf for candidate in chosen])
        for t, _ in want.pairs:
            if room[t] > 0:
                self._changed.append(node)
                break


def _rearranged(places: Sequence[Place], left: Sequence[int]) -> list[Place] | None:
    """*places* of one node in an order in which they need fewer victims; *left* is free there after all of them.

    ``None``: there is no such order. In it each ask runs once its own victims, and those before them, have left, and
    would not without any one of its own.
    """
    asked = {t for place in places for t, _ in place.ask.shape.pairs}
    over = {t: left[t] for t in asked}
    dropped: set[str] = set()
    for place in reversed(places):
        for victim in reversed(place.victims):
            pairs = [(t, amount) for t, amount in victim.shape.pairs if t in asked]
            if all(over[t] >= amount for t, amount in pairs):
                dropped.add(victim.key)
                for t, amount in pairs:
                    over[t] -= amount
    if not dropped:
        return None
    room = dict(over)
    waiting: list[Place] = []
    for place in places:
        kept = tuple(victim for victim in place.victims if victim.key not in dropped)
        waiting.append(place._replace(victims=kept))
        for t, amount in place.ask.shape.pairs:
            room[t] += amount
        for victim in kept:
            for t, amount in victim.shape.pairs:
                if t in room:
                    room[t] -= amount
    ordered: list[Place] = []
    while waiting:
        chosen = next((place for place in waiting if _runs_by_its_own(place, room)), None)
        if chosen is None:
            return None
        waiting.remove(chosen)
        ordered.append(chosen)
        for victim in chosen.victims:
            for t, amount in victim.shape.pairs:
                if t in room:
                    room[t] += amount
        for t, amount in chosen.ask.shape.pairs:
            room[t] -= amount
    return ordered


def _runs_by_its_own(place: Place, room: _Amounts) -> bool:
    """Tells whether the ask of *place* runs in *room* once its own victims have left, all of which that takes."""
    lack = {t: amount - room[t] for t, amount in place.ask.shape.pairs}
    for victim in place.victims:
        for t, amount in victim.shape.pairs:
            if t in lack:
                lack[t] -= amount
    if any(amount > 0 for amount in lack.values()):
        return False
    return all(any(t in lack and lack[t] + amount > 0 for t, amount in victim.shape.pairs) for victim in place.victims)


def _met(lack: _Amounts, needs: list[tuple[QueueFigures, _Amounts]]) -> bool:
    for amount in lack.values():
        if amount > 0:
            return False
    return not any(amount > 0 for _, need in needs for amount in need.values())


def _leave_out(chosen: list[Candidate], lack: _Amounts, needs: list[tuple[QueueFigures, _Amounts]]) -> None:
    """Drop those of *chosen* whose room is not needed with that of the others, the last first."""
    for candidate in reversed(list(chosen)):
        _lower(candidate, lack, needs, -1)
        if _met(lack, needs):
            chosen.remove(candidate)
        else:
            _lower(candidate, lack, needs, 1)


def _lower(candidate: Candidate, lack: _Amounts, needs: list[tuple[QueueFigures, _Amounts]], times: int) -> None:
    """Returns what *candidate* frees is lacking no more; with *times* -1 it is again."""
    for t, amount in candidate.pairs:
        if t in lack:
            lack[t] -= amount * times
        for queue, need in needs:
            if t in need and queue in candidate.leaf.lineage:
                need[t] -= amount * times
