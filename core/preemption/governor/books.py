"""Keeps the governor's books of a partition: what preemption has taken lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile

from kornel.core.domain.settings import GovernorSettings
from kornel.core.preemption.governor.bounds import Limits, Loss, Scope, Taken, Turn, scopes_of


class GovernorBooks:
    """The victims within the window, with running totals by scope. Entries are dropped when they have left all windows.

    Queues and applications are known by name: a new one with the name of an earlier one continues its budget.
    """

    def __init__(self) -> None:
        self.taken: deque[Taken] = deque()
        self._victims: dict[Scope, int] = {}
        self._lost: dict[Scope, dict[int, int]] = {}
        self._preempted: dict[str, tuple[int, object]] = {}
        """The time and the decision of the last loss of each queue, the oldest first."""
        self._turns: dict[tuple[str, str], deque[Turn]] = {}
        """The turns between each pair of queues. The pair whose last turn is the oldest comes first."""
        self.paused: dict[Scope, int] = {}
        """The times until which preemption was reported to pause, by scope."""
        self.limits: tuple[GovernorSettings, Limits] | None = None
        """The settings used last, and the limits computed from them."""
        self.denied = 0
        """The number of plans denied so far."""

    @property
    def scopes(self) -> Iterable[Scope]:
        """The scopes that lost something within the window, as of the last time that entries were dropped."""
        return self._victims

    def count_victims(self, scope: Scope) -> int:
        """Returns how many victims *scope* lost within the window."""
        return self._victims.get(scope, 0)

    def lost_seconds(self, scope: Scope, t: int) -> int:
        """Returns the resource-seconds of type *t* that *scope* lost within the window."""
        return self._lost.get(scope, {}).get(t, 0)

    def last_loss(self, queue: str) -> tuple[int, object] | None:
        """Returns when *queue* last lost something, and by which decision; ``None``: it did not."""
        return self._preempted.get(queue)

    def turns_between(self, one: str, other: str) -> Sequence[Turn]:
        """Returns the latest turns in which two queues took from each other, the oldest first."""
        return self._turns.get(_sorted_pair(one, other), ())

    def book_losses(
        self, limits: Limits, losses: Iterable[Loss], preemptor: str, now_ns: int, decision: object = None
    ) -> None:
        """Books *losses*, which *decision* took for queue *preemptor* (empty: for no queue)."""
        queues: dict[str, None] = {}
        for loss in losses:
            self.taken.append(Taken(now_ns, loss))
            queues[loss.queue] = None
            for scope in scopes_of(loss):
                self._victims[scope] = self._victims.get(scope, 0) + loss.victims
                if loss.lost:
                    amounts = self._lost.setdefault(scope, {})
                    for t, amount in loss.lost:
                        amounts[t] = amounts.get(t, 0) + amount
        for queue in queues:
            if limits.cooldown_ns:
                self._preempted.pop(queue, None)
                self._preempted[queue] = (now_ns, decision)
            if preemptor and limits.loop_window_ns:
                self.note_turn(preemptor, queue, now_ns)

    def note_turn(self, preemptor: str, queue: str, now_ns: int) -> None:
        """Notes that something was taken from *queue* for queue *preemptor*, as the latest turn between the two."""
        pair = _sorted_pair(preemptor, queue)
        turns = self._turns.pop(pair, None) or deque()
        self._turns[pair] = turns
        if turns and turns[-1].preemptor == preemptor:
            turns.pop()
        turns.append(Turn(now_ns, preemptor))

    def drop_expired(self, limits: Limits, now_ns: int) -> None:
        """Drops entries that have left their windows."""
        while self.taken and self.taken[0].at_ns + limits.window_ns <= now_ns:
            self._uncount_loss(self.taken.popleft().loss)
        while self._preempted:
            queue, (at_ns, _) = next(iter(self._preempted.items()))
            if at_ns + limits.cooldown_ns > now_ns:
                break
            del self._preempted[queue]
        while self._turns:
            pair, turns = next(iter(self._turns.items()))
            if turns[-1].last_ns + limits.loop_window_ns > now_ns:
                break
            del self._turns[pair]

    def forget_turns(self, limits: Limits, one: str, other: str, now_ns: int) -> None:
        """Drops those turns between two queues that have left the loop window."""
        pair = _sorted_pair(one, other)
        turns = self._turns.get(pair)
        if turns is None:
            return
        while turns and turns[0].last_ns + limits.loop_window_ns <= now_ns:
            turns.popleft()
        if not turns:
            del self._turns[pair]

    def _uncount_loss(self, loss: Loss) -> None:
        for scope in scopes_of(loss):
            left = self._victims[scope] - loss.victims
            if not left:
                del self._victims[scope]
                self._lost.pop(scope, None)
                continue
            self._victims[scope] = left
            for t, amount in loss.lost:
                self._lost[scope][t] -= amount


class AsOf:
    """The books as they would be at *now_ns*, for forecasts: nothing is dropped.

    The cost grows with the number of entries that have left the windows since the last victim was booked.
    """

    def __init__(self, books: GovernorBooks, limits: Limits, now_ns: int) -> None:
        self._books = books
        self._loop_since_ns = now_ns - limits.loop_window_ns
        window = limits.window_ns
        gone = list(takewhile(lambda taken: taken.at_ns + window <= now_ns, books.taken))
        self._gone = len(gone)
        self._victims: dict[Scope, int] = {}
        self._lost: dict[tuple[Scope, int], int] = {}
        for taken in gone:
            for scope in scopes_of(taken.loss):
                self._victims[scope] = self._victims.get(scope, 0) + taken.loss.victims
                for t, amount in taken.loss.lost:
                    self._lost[scope, t] = self._lost.get((scope, t), 0) + amount

    @property
    def taken(self) -> Iterator[Taken]:
        """The losses within the window that ends at *now_ns*, the oldest first."""
        return islice(self._books.taken, self._gone, None)

    def count_victims(self, scope: Scope) -> int:
        """Returns how many victims *scope* lost within that window."""
        return self._books.count_victims(scope) - self._victims.get(scope, 0)

    def lost_seconds(self, scope: Scope, t: int) -> int:
        """Returns the resource-seconds of type *t* that *scope* lost within that window."""
        return self._books.lost_seconds(scope, t) - self._lost.get((scope, t), 0)

    def last_loss(self, queue: str) -> tuple[int, object] | None:
        """Returns when *queue* last lost something, and by which decision; ``None``: it did not."""
        return self._books.last_loss(queue)

    def turns_between(self, one: str, other: str) -> Sequence[Turn]:
        """Returns the last turns in which two queues took from each other, the oldest first."""
        return [turn for turn in self._books.turns_between(one, other) if turn.last_ns > self._loop_since_ns]


def _sorted_pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
