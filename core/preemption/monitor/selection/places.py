"""Finds places for waiting asks: for each ask a node, and the victims whose release makes room for it there.

Candidates are examined in the order of victims. An ask gets the first node on which the candidates examined so far make
room for it, so that no later candidate is taken while earlier ones are enough; then candidates that are not needed are
left out. Leaves that are short of their share take turns, the least served leaf first. Rules: preemption.md E.5.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from heapq import heappop, heappush, merge
from math import floor
from operator import attrgetter
from typing import Final

from kornel.core.domain.ask_places import AskPlace
from kornel.core.domain.settings import GuaranteeMode
from kornel.core.model.allocations import Allocation, Reservation, sum_amounts
from kornel.core.model.nodes import Node
from kornel.core.model.orders.waiting_rooms import is_asleep
from kornel.core.model.queues import Queue
from kornel.core.model.shapes import holds_pairs
from kornel.core.policies.application_order import application_key
from kornel.core.preemption.gang_losses import find_whole_gangs, is_leaving_whole
from kornel.core.preemption.monitor.plan import Place
from kornel.core.preemption.monitor.selection.candidates import (
    ORIGINATORS,
    Candidate,
    Lack,
    Needs,
    Want,
    Whom,
)
from kornel.core.preemption.monitor.selection.figures import Amounts, QueueFigures, entitlement_of, waits_for_room
from kornel.core.preemption.monitor.selection.passages import admits
from kornel.core.preemption.monitor.selection.place_order import rearrange_places
from kornel.core.preemption.monitor.selection.round import Round, is_positive
from kornel.core.preemption.monitor.selection.victim_choice import NodeRooms, VictimChoice, is_usable
from kornel.core.preemption.run_times import last_end

LOOKS_PER_TRY: Final = 5
"""The number of allocations that can be examined in the time of one attempt to make room on a node."""
LOOKS_FOR_DEVICES: Final = 8
"""The number of allocations that can be examined in the time in which the devices of a node are counted without one."""
LOOKS_A_PIECE: Final = 500
_SCALE: Final = 10**9
_Search = tuple[object, ...]
_order_of: Final = attrgetter("order")


class _Progress:
    """The progress of the search for one kind of ask among the candidates."""

    __slots__ = ("at", "changed", "over", "seen")

    def __init__(self) -> None:
        self.at = 0
        self.changed = 0
        self.over = False
        """Tells whether no place is left for an ask of this kind."""
        self.seen: dict[Node, list[Candidate]] = {}


class Planner:
    """Finds places for the asks of leaves that are short of their share."""

    def __init__(self, run: Round) -> None:
        self._run = run
        self._rooms: Final = NodeRooms()
        self._candidates: dict[str, Candidate] = {}
        self._waiting: dict[QueueFigures, list[Allocation]] = {}
        self._places: dict[str, None] = {}
        """Keys of the asks that have a place."""
        self._crossing = False
        """Tells whether some victim leaves one node for an ask on another."""
        self._going: dict[Node, list[Candidate]] = {}
        """The candidates that are to leave, by node."""
        self._changed: list[Node] = []
        self._accounts: dict[object, Amounts] = {}
        self._elsewhere: dict[QueueFigures, list[Allocation]] | None = None
        self.choice: Final = VictimChoice(run, self._rooms, self._going)
        self._strict = run.view.guarantee_mode is GuaranteeMode.STRICT

    def candidate_for(self, allocation: Allocation) -> Candidate | None:
        """Returns *allocation* as a candidate; ``None`` if its leaf or its node must be left alone."""
        known = self._candidates.get(allocation.key)
        if known is None:
            leaf, node = self._run.picture.of.get(allocation.queue), allocation.node
            if leaf is None or node is None or leaf.disabled or leaf.queue in self._run.spared:
                return None
            known = self._candidates[allocation.key] = Candidate(allocation, leaf, node)
        return known

    def give_back(self, reservation: Reservation) -> None:
        """Count the room of *reservation* as free for others from now on, because it will be dropped or its ask gets
        another place."""
        node = reservation.node
        if reservation.ask.key in self._rooms.given_back:
            return
        room, without = self._rooms.left_over(node), node.room_without(reservation)
        gained = [with_it - beside for with_it, beside in zip(without, node.beside, strict=True)]
        self._rooms.given_back[reservation.ask.key] = gained
        for t, amount in enumerate(gained):
            room[t] += amount
        self._changed.append(node)

    def spare_needless(self) -> Generator[int, None, None]:
        """Leave out victims on nodes where the other victims make enough room for all asks that are placed there."""
        selection = self._run.selection
        by_node: dict[Node, list[Place]] = {node: [] for node in self._changed}
        if not by_node or self._crossing:
            return
        if any(amount > selection.limits.get(t, 0) for t, amount in selection.selected.items()):
            return  # One place is larger than a round may select, so it has to stay the first.
        for place in selection.places:
            if place.node in by_node:
                by_node[place.node].append(place)
        yield len(selection.places) // LOOKS_PER_TRY
        for node, places in by_node.items():
            if sum(bool(place.victims) for place in places) > 1 and node not in self.choice.promised:
                given, asks = self._rooms.given_back, [place.ask for place in places]
                own = [ask.key for ask in asks if ask.reservation is not None and ask.reservation.node is node]
                returned = {key: given[key] for key in own if key in given}
                shared = rearrange_places(places, self._rooms.left_over(node), returned)
                if shared is not None:
                    selection.replace_places(places, shared)
                yield LOOKS_PER_TRY * len(places)

    def spare_originators(self, leaf: QueueFigures, originators: Iterable[Allocation]) -> None:
        """Spare *originators*, all originators of *leaf*, up to the reserve that the leaf keeps for them (E.5)."""
        spare = self._run.spare[leaf] = sum_amounts(originators)
        for t in spare:
            spare[t] -= floor(self._run.settings.originator_reserve * leaf.guaranteed.get(t, 0))

    def replan_last(self) -> Generator[int, None, None]:
        """Plan again the places of the last round that are still wanted, so that notices keep their victims.

        If less has to be given up than before, places whose victims have saved their work or are prepared come first.
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
            if find_whole_gangs(place.victims):
                continue  # Whole gangs are looked at only once it is known that nobody else is enough.
            want = self.still_wanted(place.ask)
            if want is None or not self._plan_again(want, place):
                memory.places.append(place)
        yield len(places)

    def _plan_again(self, want: Want, place: Place) -> bool:
        """Give *want* the *place* it had, with those of the same victims that are still needed."""
        run, node = self._run, place.node
        kept: list[Candidate] = []
        for victim in place.victims:
            candidate = self.candidate_for(victim) if victim.key in run.memory.notified and run.may_go(victim) else None
            if candidate is None:
                return False
            kept.append(candidate)
        one = kept[0]
        if (
            len(kept) == 1
            and one.node is node
            and is_usable(node, want.ask)
            and self._equal_does(want, one, self._rooms.room_for(node, want.ask))
        ):
            self.commit(want, node, kept)
            return True
        anywhere = any(candidate.node is not node for candidate in kept)
        chosen = self.choice.choose_victims(want, node, kept, Whom.GIVING, anywhere=anywhere)
        if chosen:
            self.commit(want, node, chosen)
        return bool(chosen)

    def _is_prepared(self, victim: Allocation) -> bool:
        return victim.key in self._run.memory.accepted or victim.key in self._run.memory.checkpoints

    def still_wanted(self, ask: Allocation) -> Want | None:
        """Returns what *ask* wants if it still waits and its leaf is still short of that; otherwise ``None``."""
        leaf = self._run.picture.of.get(ask.queue)
        if leaf is None or ask.key in self._places or not self._may_wait(ask) or not self._is_owed(leaf, ask):
            return None
        return self.want_of(ask, leaf)

    def fill_places(self, ranked: Sequence[Candidate]) -> Generator[int, None, None]:
        """Find places for asks, leaf by leaf in turns, with victims from *ranked* in their order."""
        run = self._run
        searches: dict[_Search, _Progress] = {}
        turns: list[tuple[int, int, str, QueueFigures]] = []
        positions: dict[QueueFigures, int] = {}
        for leaf in run.short:
            yield from self._gather_asks(leaf)
            heappush(turns, self._turn_of(leaf))
        spent = 0
        while turns:
            leaf = heappop(turns)[3]
            waiting, at = self._waiting[leaf], positions.get(leaf, 0)
            placed = False
            while at < len(waiting) and not placed and is_positive(run.short[leaf]):
                ask = waiting[at]
                at += 1
                spent += 1
                if ask.key in self._places or not self._is_owed(leaf, ask):
                    continue
                want = self.want_of(ask, leaf)
                search = self._search_of(want)
                progress = searches.get(search)
                if progress is None:
                    progress = searches[search] = _Progress()
                elif progress.over:
                    if run.left:
                        continue
                    break  # No victims are left to take; other asks of this leaf have to wait.
                placed = yield from self._place_want(want, ranked, progress)
                if not placed:
                    progress.over = True
                spent += 2 * LOOKS_PER_TRY
                if spent >= LOOKS_A_PIECE:
                    yield spent
                    spent = 0
            positions[leaf] = at
            if placed:
                heappush(turns, self._turn_of(leaf))
        yield spent

    def _turn_of(self, leaf: QueueFigures) -> tuple[int, int, str, QueueFigures]:
        """Returns the sort key of *leaf*: the highest priority first, then the least served for its guarantee, then the
        path."""
        planned, share = self._run.planned_for(leaf), _SCALE
        for t in self._run.short[leaf]:
            guaranteed = leaf.guaranteed.get(t)
            if guaranteed is not None:
                share = min(share, (leaf.used[t] + planned.get(t, 0)) * _SCALE // guaranteed)
        return (-leaf.priority, share, leaf.queue.path, leaf)

    def _is_owed(self, leaf: QueueFigures, ask: Allocation) -> bool:
        """Tells whether *leaf* is short of something that *ask* asks for, and no other type of the ask has reached its
        share there."""
        short = self._run.short.get(leaf)
        if not short:
            return False
        owed = False
        for t, amount in ask.shape.pairs:
            lacking = short.get(t, 0)
            if lacking > 0:
                if self._strict and amount > lacking:
                    return False
                owed = True
            elif t in (leaf.queue.guaranteed if self._run.declared else leaf.guaranteed):
                return False
        if not owed or (ask.application.accounts and not self._within_limits(ask)):
            return False
        return self._run.balancing or entitlement_of(self._run.view, ask, self._held_by) is not None

    def _held_by(self, queue: Queue, t: int) -> int:
        """Returns what *queue* holds of type *t* once the places planned so far are taken."""
        return self._run.picture.of[queue].projected(t)

    def _within_limits(self, ask: Allocation) -> bool:
        return all(account.admits(ask.shape.pairs, self._accounts.get(account, {})) for account in ask.accounts)

    def _may_wait(self, ask: Allocation) -> bool:
        """Tells whether *ask* waits for room that preemption may provide."""
        if ask.node is not None or self._run.view.requests.get(ask.key) is not ask:
            return False
        if not waits_for_room(ask):
            return False
        group = ask.group
        if group is not None:
            # For a group that is about to be tried, nothing is preempted yet.
            return is_asleep(group) and not group.kept_back
        return ask.place is AskPlace.RESERVED or ask.place is AskPlace.REFUSED

    def _gather_asks(self, leaf: QueueFigures) -> Generator[int, None, None]:
        """Collect the waiting asks of *leaf*, in the order in which they are served."""
        if leaf in self._waiting:
            return
        found: list[Allocation] = []
        others: dict[object, list[Allocation]] = {}
        for ask in self._waiting_elsewhere().get(leaf, ()):
            others.setdefault(ask.application, []).append(ask)
        for application in sorted(leaf.queue.applications.values(), key=application_key):
            leaves = is_leaving_whole(application)
            # For a group that is about to be tried, nothing is preempted yet.
            lists = [
                [ask for ask in group.asks() if ask.spec.allow_preempt_other]
                for group in application.groups.values()
                if not group.kept_back and not group.required_node and is_asleep(group) and not leaves
            ]
            if application in others:
                lists.append(sorted(others[application], key=_order_of))
            found += lists[0] if len(lists) == 1 else merge(*lists, key=_order_of)
            yield 1 + len(found) // 2
        self._waiting[leaf] = found

    def _waiting_elsewhere(self) -> dict[QueueFigures, list[Allocation]]:
        """Returns, by leaf, the asks that wait with a reservation, or because the shim refused them on every node."""
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

    def want_of(self, ask: Allocation, leaf: QueueFigures) -> Want:
        """Returns what it takes to place *ask*."""
        needs: Needs = []
        for figures in leaf.capped:
            ceilings = figures.queue.max
            need: Lack = {}
            for t, amount in ask.shape.pairs:
                most = ceilings.get(t)
                if most is not None:
                    beyond = figures.projected(t) + amount - most
                    if beyond > 0:
                        need[t] = min(amount, beyond)
            if need:
                needs.append((figures, need))
        entitled = None if self._run.balancing else entitlement_of(self._run.view, ask, self._held_by)
        if entitled is not None:
            # Those inside a guarantee that is spent make room for each other; nobody outside makes room for them.
            needs += [(self._run.picture.of[entitled.queues[t]], {t: gone}) for t, gone in entitled.swaps.items()]
        return Want(ask, leaf, needs)

    def _search_of(self, want: Want) -> _Search:
        """Returns the key by which asks share one search."""
        ask, leaf = want.ask, want.leaf
        reserved = refused = None
        if ask.reservation is not None:
            reserved = ask.reservation.node
        if ask.refused or (ask.extras is not None and ask.stuck):
            refused = frozenset((*(ask.refused or ()), *ask.stuck.values()))
        # A leaf that gives up one type while it is short of another does not consider its own tasks.
        own = leaf if want.needs or leaf in self._run.left else None
        return (ask.shape, ask.spec.priority, refused, reserved, own, self._run.passage.outlook_of(leaf))

    def _place_want(self, want: Want, ranked: Sequence[Candidate], progress: _Progress) -> Generator[int, None, bool]:
        """Give *want* the first place for which the candidates examined so far, or the next ones, make room."""
        if want.needs:
            node = self.node_with_room(want)
            if node is not None:
                placed = self.place_on(want, node, ranked, anywhere=True)
                yield len(self._run.picture.queues) + len(ranked) // LOOKS_PER_TRY
                return placed
        seen = progress.seen
        while progress.changed < len(self._changed):
            node = self._changed[progress.changed]
            progress.changed += 1
            if self._try_node(want, node, seen.get(node, ())):
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
            if want.ask.shape.devices is not None:
                looked_at += LOOKS_FOR_DEVICES * len(there)
            if self._try_node(want, node, there):
                return True
        return False

    def _try_node(self, want: Want, node: Node, there: Sequence[Candidate]) -> bool:
        """Place *want* on *node* if the candidates *there* make room."""
        if not is_usable(node, want.ask):
            return False
        room = self._rooms.room_for(node, want.ask)
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
        return self.place_on(want, node, there)

    def place_on(self, want: Want, node: Node, candidates: Sequence[Candidate], *, anywhere: bool = False) -> bool:
        """Places *want* on *node* if those of *candidates* there make room, or with *anywhere* those on any node."""
        chosen = self.choice.choose_victims(want, node, candidates, Whom.GIVING, anywhere=anywhere)
        if chosen is None:
            return False
        self.choice.judge_choice(want, node, candidates, chosen)
        self.commit(want, node, chosen)
        return True

    def _equal_does(self, want: Want, candidate: Candidate, room: list[int]) -> bool:
        """Tells whether releasing *candidate* alone, of the same size as *want*, is enough: a short path for the usual
        case.

        All other cases are left to :meth:`VictimChoice.choose_victims`.
        """
        pairs, run = want.pairs, self._run
        if candidate.pairs is not pairs or want.needs or candidate.reluctance >= ORIGINATORS or candidate.taken:
            return False
        if want.ask.shape.devices is not None:
            return False
        if not self.choice.may_share(want, candidate.node):
            return False
        helps = False
        for t, amount in pairs:
            there = room[t]
            if there < 0:
                return False
            if there < amount and not helps:
                helps = run.gives_up(candidate.leaf, t)
        if not helps or not run.selection.has_room(pairs):
            return False
        limit = run.passage.highest_priority(want.leaf, want.ask.spec.priority, candidate.leaf)
        if limit is None or candidate.allocation.spec.priority > limit:
            return False
        guard = run.passage.guard_of(want.leaf, candidate.leaf)
        if guard is not None and last_end(candidate.members, guard) > run.view.now_ns:
            return False
        return admits(candidate.leaf, pairs, want.leaf, pairs, declared=run.declared)

    def node_with_room(self, want: Want) -> Node | None:
        """Returns the first node that has room for *want* without any victim: then only a queue on the path is full."""
        if want.ask.shape.no_room:
            return None
        for node in self._run.view.nodes.values():
            if is_usable(node, want.ask):
                room = self._rooms.room_for(node, want.ask)
                if holds_pairs(room, want.pairs) and self.choice.has_devices(want, node):
                    return node
        return None

    def commit(self, want: Want, node: Node, chosen: Sequence[Candidate]) -> None:
        """Plan to place *want* on *node* once *chosen* are released."""
        self._places[want.ask.key] = None
        if want.ask.reservation is not None:
            self.give_back(want.ask.reservation)
        room = self._rooms.left_over(node)
        for t, amount in want.pairs:
            room[t] -= amount
        if want.ask.shape.devices is not None:
            self.choice.promised.add(node)
        for candidate in chosen:
            candidate.taken = True
            self._count_victims(candidate, node)
            spare = self._run.spare.get(candidate.leaf) if candidate.reluctance >= ORIGINATORS else None
            if spare is not None:
                for t, amount in candidate.originating:
                    spare[t] -= amount
        for account in want.ask.accounts:
            planned = self._accounts.setdefault(account, {})
            for t, amount in want.pairs:
                planned[t] = planned.get(t, 0) + amount
        place = Place(want.ask, node, tuple(member for candidate in chosen for member in candidate.members))
        self._run.commit(place, want.leaf, [candidate.leaf for candidate in chosen for _ in candidate.members])
        for t, _ in want.pairs:
            if room[t] > 0:
                self._changed.append(node)
                break

    def _count_victims(self, candidate: Candidate, node: Node) -> None:
        """Counts what leaves with *candidate* as room on its nodes, for an ask on *node*."""
        for victim in candidate.members:
            there = victim.node
            if there is None:
                continue
            going = self._going.setdefault(there, [])
            if candidate not in going[-1:]:
                going.append(candidate)
            room = self._rooms.left_over(there)
            for t, amount in victim.shape.pairs:
                room[t] += amount
            if there is not node:
                self._crossing = True
                self._changed.append(there)

    def list_wants(self) -> Generator[int, None, list[Want]]:
        """Returns what asks still want that are owed a place, one of each kind, in the order in which leaves take
        turns."""
        found: list[Want] = []
        for leaf in sorted(self._run.short, key=lambda leaf: self._turn_of(leaf)[:3]):
            yield from self._gather_asks(leaf)
            if not is_positive(self._run.short[leaf]):
                continue
            kinds: dict[_Search, None] = {}
            for ask in self._waiting[leaf]:
                if ask.key not in self._places and self._is_owed(leaf, ask):
                    want = self.want_of(ask, leaf)
                    search = self._search_of(want)
                    if search not in kinds:
                        kinds[search] = None
                        found.append(want)
            yield len(self._waiting[leaf])
        return found
