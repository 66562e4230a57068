"""Holds back the effects of a call until its record is durable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from operator import ge
from typing import NamedTuple, Protocol

from kornel.core.journal.committer import Committer, StoreProblem
from kornel.core.journal.settings import JournalSettings
from kornel.core.journal.sync import JournalSync
from kornel.core.service.status_codes import JournalFull, JournalUnavailable, ServiceError


class Responses(Protocol):
    """Counts the responses to a manager."""

    def count_entered(self) -> tuple[int, ...]:
        """Returns the number of responses of each kind that were ever passed on for sending."""

    def count_gone(self) -> tuple[int, ...]:
        """Returns the number of those that the transport has accepted, so that the next core need not send them
        again."""


class _Mark(NamedTuple):
    """Once *entered* responses were sent, those of all records up to *sequence* were sent."""

    sequence: int
    entered: tuple[int, ...]


class JournalGate:
    """The gate of a core with a journal. It is used only from the event loop's thread.

    *responses* returns the counts of responses that have passed the gate, or ``None`` if they are not counted.
    """

    def __init__(
        self, committer: Committer, settings: JournalSettings, responses: Callable[[], Responses | None]
    ) -> None:
        self._committer = committer
        self._settings = settings
        self._holds_back = settings.sync is not JournalSync.OFF
        self._responses = responses
        self._mark: _Mark | None = None
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()
        self.durable = committer.added
        """The number of the last record that is durable."""
        self.problem: StoreProblem | None = None
        """The reason why nothing becomes durable; ``None``: there is none."""
        self._stopping = False
        self._bug: Exception | None = None
        self._news = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Returns the number of sets of effects that wait at the gate."""
        return len(self._queue)

    @property
    def behind(self) -> int:
        """Returns the number of records that are not durable yet."""
        return self._committer.added - self.durable

    def pass_on(self, act: Callable[[], None]) -> None:
        """Calls *act* once the record of the last call is durable, after everything that was passed on earlier."""
        if not self._holds_back or (not self._queue and self._committer.added <= self.durable):
            act()
        else:
            self._queue.append((self._committer.added, act))
            self._committer.commit_soon()

    def check_intake(self) -> None:
        """Raises :class:`ServiceError` while the store does not accept records."""
        if self.problem is not None:
            raise _refusal_for(self.problem)

    async def wait_for_room(self) -> None:
        """Returns when the engine may continue. Raises :class:`ServiceError` if another core has taken over."""
        # Between two turns the delivered records are known, because every decision has been passed on.
        self._note_delivered()
        while True:
            if self._bug is not None:
                raise self._bug
            if self.problem is not None and self.problem.lost:
                raise _refusal_for(self.problem)
            if self._stopping or (self.problem is None and self.behind < self._settings.calls_ahead):
                return
            self._committer.commit_soon()
            self._news.clear()
            await self._news.wait()

    async def wait_until_passed(self) -> None:
        """Returns when all records are durable and nothing waits. Raises :class:`ServiceError` if that never
        happens."""
        if self._holds_back:
            self._committer.commit_soon()
            while self.behind or self._queue:
                if self.problem is not None and (self.problem.lost or self._stopping):
                    raise _refusal_for(self.problem)
                self._news.clear()
                await self._news.wait()

    async def wait_until_durable(self) -> None:
        """Returns when all records are durable, whether or not anything waits for that. Raises :class:`ServiceError` if
        that never happens."""
        self._committer.commit_soon()
        while self.behind:
            if self.problem is not None and (self.problem.lost or self._stopping):
                raise _refusal_for(self.problem)
            self._news.clear()
            await self._news.wait()

    def stop(self) -> None:
        """Stop all waiting for a store that does not accept records."""
        self._stopping = True
        self._news.set()

    def note_durable(self, sequence: int) -> None:
        """Release everything up to record *sequence*, which is durable."""
        self.durable = max(self.durable, sequence)
        queue = self._queue
        while queue and queue[0][0] <= sequence:
            try:
                queue.popleft()[1]()
            except Exception as error:  # noqa: BLE001 - the task that owns the engine ends of it, as without a journal
                self._bug = error
                break
        self._news.set()

    def note_problem(self, problem: StoreProblem | None) -> None:
        """Note that the store does not accept records because of *problem*, or, with ``None``, accepts them again."""
        self.problem = problem
        self._news.set()

    def _note_delivered(self) -> None:
        responses = self._responses()
        if responses is None:
            return
        gone = responses.count_gone()
        self._settle_mark(gone)
        if self._mark is None and self.durable > self._committer.delivered:
            # Everything that may leave has left, so the durable records have no other responses.
            self._mark = _Mark(self.durable, responses.count_entered())
            self._settle_mark(gone)

    def _settle_mark(self, gone: tuple[int, ...]) -> None:
        mark = self._mark
        if mark is not None and all(map(ge, gone, mark.entered)):
            self._committer.delivered = mark.sequence
            self._mark = None


def _refusal_for(problem: StoreProblem) -> ServiceError:
    if problem.full:
        return JournalFull(f"journal: {problem.text}; nothing is accepted until there is room")
    return JournalUnavailable(f"journal: {problem.text}; nothing is accepted until it can be written")
