"""Holds back the effects of a call until its record is durable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from operator import ge
from typing import Final, NamedTuple, Protocol

from kornel.core.journal.database.choices import JournalSync
from kornel.core.journal.database.settings import JournalSettings
from kornel.core.journal.writing.committer import Committer, StoreProblem
from kornel.core.service.wire.status_codes import JournalFull, JournalUnavailable, ServiceError


class Responses(Protocol):
    """Counts the responses to a manager."""

    def count_entered(self) -> tuple[int, ...]:
        """Returns the number of responses of each kind that were ever passed on for sending."""

    def count_gone(self) -> tuple[int, ...]:
        """Returns the number of those that the transport has accepted, so that the next core need not send them
        again."""


class _Mark(NamedTuple):
    """A promise: once every place has sent the number of responses that *entered* says, the responses of all records up
    to *sequence* were sent."""

    sequence: int
    entered: tuple[tuple[Responses, tuple[int, ...]], ...]


class JournalGates:
    """The gates of the places of a core with a journal, which share its committer. They are used only from the event
    loop's thread."""

    def __init__(self, committer: Committer, settings: JournalSettings) -> None:
        self.committer: Final = committer
        """The committer, which makes records durable."""
        self.holds_back: Final = settings.sync is not JournalSync.OFF
        """Tells whether effects wait until their record is durable."""
        self._calls_ahead = settings.calls_ahead
        self._gates: list[JournalGate] = []
        self._mark: _Mark | None = None
        self.durable = committer.added
        """The number of the last record that is durable."""
        self.problem: StoreProblem | None = None
        """The reason why nothing becomes durable; ``None``: there is none."""

    @property
    def waiting(self) -> int:
        """Returns the number of sets of effects that wait at all gates."""
        return sum(gate.waiting for gate in self._gates)

    @property
    def calls_ahead(self) -> int:
        """Returns the number of calls by which each engine may be ahead of its last durable record."""
        return max(1, self._calls_ahead // max(1, sum(not gate.closed for gate in self._gates)))

    def open_gate(self) -> JournalGate:
        """Returns a gate for a further place."""
        gate = JournalGate(self)
        self._gates.append(gate)
        return gate

    def check_intake(self) -> None:
        """Raises :class:`ServiceError` while the store does not accept records."""
        if self.problem is not None:
            raise refusal_for(self.problem)

    def note_durable(self, sequence: int) -> None:
        """Release everything up to record *sequence*, which is durable."""
        self.durable = max(self.durable, sequence)
        for gate in tuple(self._gates):
            gate.note_durable(sequence)
            if gate.closed and not gate.waiting and not gate.behind:
                self._gates.remove(gate)

    def note_problem(self, problem: StoreProblem | None) -> None:
        """Note that the store does not accept records because of *problem*, or, with ``None``, accepts them again."""
        self.problem = problem
        for gate in self._gates:
            gate.note_news()

    def note_delivered(self) -> None:
        """Note up to which record the transport has accepted all responses. It is called between two turns of a place,
        when each of its decisions has been passed on."""
        self._settle_mark()
        if self._mark is not None:
            return
        gates = [gate for gate in self._gates if not gate.closed]
        # A place whose call waits here has not yet passed on what the call decided.
        told = min([self.durable, *(gate.passed_until for gate in gates if gate.passed_until is not None)])
        counted = [gate.responses for gate in gates if gate.responses is not None]
        if told > self.committer.delivered and len(counted) == len(gates) > 0:
            self._mark = _Mark(told, tuple((responses, responses.count_entered()) for responses in counted))
            self._settle_mark()

    def _settle_mark(self) -> None:
        mark = self._mark
        if mark is not None and all(
            all(map(ge, responses.count_gone(), entered))
            for responses, entered in mark.entered
            if any(gate.responses is responses and not gate.closed for gate in self._gates)
        ):
            self.committer.delivered = mark.sequence
            self._mark = None


class JournalGate:
    """The gate of one place. It waits only for the records of this place, which become durable after the earlier
    records of other places, but never has to wait for later ones."""

    def __init__(self, gates: JournalGates) -> None:
        self._gates = gates
        self.responses: Responses | None = None
        """The counts of the place's responses. The next core sends those again that the transport has not accepted.
        ``None``: they are not counted."""
        self.closed = False
        """Tells whether the place is closed, so that it adds no more records."""
        self.passed_until: int | None = None
        """The number of the record up to which everything was passed on, while a call waits for its record to be
        durable before its effects are passed on; ``None``: everything was."""
        self._own: deque[int] = deque()
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()
        self._last = 0
        self._stopping = False
        self._bug: Exception | None = None
        self._news = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Returns the number of sets of effects that wait at the gate."""
        return len(self._queue)

    @property
    def behind(self) -> int:
        """Returns the number of records of the place that are not durable yet."""
        return len(self._own)

    @property
    def last_record(self) -> int:
        """Returns the number of the last record of the place; 0: there is none of this core."""
        return self._last

    def note_added(self, sequence: int) -> None:
        """Note that record *sequence* was added, which is of this place."""
        self._own.append(sequence)
        self._last = sequence

    def pass_on(self, act: Callable[[], None]) -> None:
        """Calls *act* once the record of the last call is durable, after everything that was passed on earlier."""
        if not self._gates.holds_back or (not self._queue and not self._own):
            act()
        else:
            self._queue.append((self._last, act))
            self._gates.committer.commit_soon()

    def check_intake(self) -> None:
        """Raises :class:`ServiceError` while the store does not accept records."""
        self._gates.check_intake()

    async def wait_for_room(self) -> None:
        """Returns when the engine may continue. Raises :class:`ServiceError` if another core has taken over."""
        gates = self._gates
        gates.note_delivered()
        while True:
            if self._bug is not None:
                raise self._bug
            problem = gates.problem
            if problem is not None and problem.lost:
                raise refusal_for(problem)
            if self._stopping or (problem is None and self.behind < gates.calls_ahead):
                return
            await self._wait_for_news()

    async def wait_until_passed(self) -> None:
        """Returns when all records of the place are durable and nothing waits. Raises :class:`ServiceError` if that
        never happens."""
        if self._gates.holds_back:
            self.passed_until = self._gates.durable
            try:
                while self._own or self._queue:
                    self._check_waiting()
                    await self._wait_for_news()
            finally:
                self.passed_until = None

    async def wait_until_durable(self) -> None:
        """Returns when all records of the place are durable, whether or not anything waits for that. Raises
        :class:`ServiceError` if that never happens."""
        while self._own:
            self._check_waiting()
            await self._wait_for_news()

    def stop(self) -> None:
        """Stop all waiting for a store that does not accept records."""
        self._stopping = True
        self._news.set()

    def close(self) -> None:
        """Note that the place adds no more records."""
        self.closed = True

    def note_durable(self, sequence: int) -> None:
        """Release everything up to record *sequence*, which is durable."""
        own, queue = self._own, self._queue
        while own and own[0] <= sequence:
            own.popleft()
        while queue and queue[0][0] <= sequence:
            try:
                queue.popleft()[1]()
            except Exception as error:  # noqa: BLE001 - the task that owns the engine ends of it, as without a journal
                self._bug = error
                break
        self._news.set()

    def note_news(self) -> None:
        """Have everybody who waits here look again."""
        self._news.set()

    def _check_waiting(self) -> None:
        problem = self._gates.problem
        if problem is not None and (problem.lost or self._stopping):
            raise refusal_for(problem)

    async def _wait_for_news(self) -> None:
        self._gates.committer.commit_soon()
        self._news.clear()
        await self._news.wait()


def refusal_for(problem: StoreProblem) -> ServiceError:
    """Returns the error for callers while nothing can be written because of *problem*."""
    if problem.full:
        return JournalFull(f"journal: {problem.text}; nothing is accepted until there is room")
    return JournalUnavailable(f"journal: {problem.text}; nothing is accepted until it can be written")
