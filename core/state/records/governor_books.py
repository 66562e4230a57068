"""Keeps the one book of what preemption has taken lately, by scope and window, and of those that wait until it may take
more (preemption.md F7, F13, K13)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from kornel.core.domain.settings import GovernorSettings
from kornel.core.model.allocations import AskGroup, Reservation
from kornel.core.model.shapes import Pairs

VICTIMS: Final = -1
"""The measure of victims, beside those of amounts, which are types by index."""


class Scope(NamedTuple):
    """A place where preemption is counted: ``cluster`` (no name), ``queue`` (path of a leaf), ``application`` (ID), or
    ``interval`` (name of a kind of preemption)."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


CLUSTER: Final = Scope("cluster")


class Loss(NamedTuple):
    """The cost of taking ``victims`` victims of one application. ``lost`` is in resource-seconds by type index, in base
    units."""

    queue: str
    application: str
    lost: Pairs = ()
    victims: int = 1

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Every scope in which it counts."""
        return (CLUSTER, Scope("queue", self.queue), Scope("application", self.application))

    @property
    def amounts(self) -> Pairs:
        """The amounts by measure."""
        return ((VICTIMS, self.victims), *self.lost)


class Taken(NamedTuple):
    """An entry of the book: its time, the scopes in which it counts, and the amounts by measure."""

    at_ns: int
    scopes: tuple[Scope, ...]
    amounts: Pairs


class Turn(NamedTuple):
    """A turn between two queues that take from each other: *preemptor* took from the other one, the last time at
    ``last_ns``."""

    last_ns: int
    preemptor: str


class Window:
    """The entries of a sliding window, the oldest first, with running totals by scope and measure."""

    __slots__ = ("taken", "totals")

    def __init__(self) -> None:
        self.taken: deque[Taken] = deque()
        self.totals: dict[Scope, dict[int, int]] = {}

    def count_amount(self, scope: Scope, measure: int = VICTIMS) -> int:
        """Returns how much of *measure* counts in *scope*."""
        total = self.totals.get(scope)
        return 0 if total is None else total.get(measure, 0)

    def add(self, taken: Taken) -> None:
        """Adds *taken*, the latest entry."""
        self.taken.append(taken)
        for scope in taken.scopes:
            total = self.totals.setdefault(scope, {})
            for measure, amount in taken.amounts:
                total[measure] = total.get(measure, 0) + amount

    def drop_until(self, until_ns: int) -> None:
        """Drops the entries made at *until_ns* or before."""
        while self.taken and self.taken[0].at_ns <= until_ns:
            gone = self.taken.popleft()
            for scope in gone.scopes:
                total = self.totals[scope]
                for measure, amount in gone.amounts:
                    total[measure] -= amount
                if not total[VICTIMS]:
                    del self.totals[scope]

    def as_of(self, until_ns: int) -> Window:
        """Returns the window without the entries made at *until_ns* or before, and drops nothing: itself if there are
        none, which costs nothing, otherwise a copy."""
        if not self.taken or self.taken[0].at_ns > until_ns:
            return self
        later = Window()
        later.taken = self.taken.copy()
        later.totals = {scope: total.copy() for scope, total in self.totals.items()}
        later.drop_until(until_ns)
        return later

    def find_entry(self, scope: Scope, measure: int, amount: int) -> int | None:
        """Returns the time of the entry with which, from the oldest on, *amount* of *measure* was taken in *scope*;
        ``None``: there is less."""
        for taken in self.taken:
            if scope in taken.scopes:
                amount -= sum(part for other, part in taken.amounts if other == measure)
                if amount <= 0:
                    return taken.at_ns
        return None


class GovernorBooks:
    """The book of one partition.

    Entries are dropped some time after they have left their window, which changes no answer unless the window is made
    longer. Queues and applications are known by name: a new one with the name of an earlier one continues its budget.
    """

    def __init__(self) -> None:
        self.lately: Final = Window()
        """The losses within the window of the governor."""
        self.interval: Final = Window()
        """The victims and the amounts that they served within one interval of the cycle, by kind."""
        self._preempted: dict[str, tuple[int, object]] = {}
        """The time and the decision of the last loss of each queue, the oldest first."""
        self._turns: dict[tuple[str, str], deque[Turn]] = {}
        """The turns between each pair of queues. The pair whose last turn is the oldest comes first."""
        self.paused: dict[Scope, int] = {}
        """The times until which preemption was reported to pause, by scope."""
        self.denied = 0
        """The number of plans denied so far."""
        self.waiting: dict[str, dict[AskGroup | Reservation, None]] = {}
        """The groups with due asks, and the reservations, that the limit of one interval holds back, by kind."""
        self.held_ns: dict[str, int] = {}
        """The time when that limit last held something back, by kind."""
        self.wakes_ns: int | None = None
        """The time when what is held back is offered again; ``None``: nothing is held back."""
        self.woke_ns = 0

    def last_loss(self, queue: str) -> tuple[int, object] | None:
        """Returns when *queue* last lost something, and by which decision; ``None``: it did not lately."""
        return self._preempted.get(queue)

    def turns_since(self, since_ns: int, one: str, other: str) -> Sequence[Turn]:
        """Returns the turns after *since_ns* in which two queues took from each other, the oldest first."""
        return [turn for turn in self._turns.get(_sorted_pair(one, other), ()) if turn.last_ns > since_ns]

    def book_losses(
        self, settings: GovernorSettings, losses: Sequence[Loss], preemptor: str, now_ns: int, decision: object = None
    ) -> None:
        """Books *losses*, which *decision* took for queue *preemptor* (empty: for no queue)."""
        for loss in losses:
            self.lately.add(Taken(now_ns, loss.scopes, loss.amounts))
        for queue in dict.fromkeys(loss.queue for loss in losses):
            if settings.cooldown_ns:
                self._preempted.pop(queue, None)
                self._preempted[queue] = (now_ns, decision)
            self.note_turn(settings, preemptor, queue, now_ns)

    def note_turn(self, settings: GovernorSettings, preemptor: str, queue: str, now_ns: int) -> None:
        """Notes that something was taken from *queue* for queue *preemptor* (empty: for no queue), as the latest turn
        between the two."""
        if not preemptor or not settings.loop_window_ns:
            return
        pair = _sorted_pair(preemptor, queue)
        turns = deque(self.turns_since(now_ns - settings.loop_window_ns, preemptor, queue))
        self._turns.pop(pair, None)
        self._turns[pair] = turns
        if turns and turns[-1].preemptor == preemptor:
            turns.pop()
        turns.append(Turn(now_ns, preemptor))

    def drop_expired(self, settings: GovernorSettings, interval_ns: int, now_ns: int) -> None:
        """Drops entries that have left their windows."""
        self.lately.drop_until(now_ns - settings.window_ns)
        self.interval.drop_until(now_ns - interval_ns)
        while self._preempted:
            queue, (at_ns, _) = next(iter(self._preempted.items()))
            if at_ns + settings.cooldown_ns > now_ns:
                break
            del self._preempted[queue]
        while self._turns:
            pair, turns = next(iter(self._turns.items()))
            if turns[-1].last_ns + settings.loop_window_ns > now_ns:
                break
            del self._turns[pair]


def _sorted_pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
