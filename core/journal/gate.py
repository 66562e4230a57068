"""Holds back what a call decided until its record is durable."""

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
    """Counts of the responses to a manager."""

    def count_entered(self) -> tuple[int, ...]:
        """Returns how many of each kind were ever handed over to be sent."""

    def count_gone(self) -> tuple[int, ...]:
        """Returns how many of them need not be sent again by the next core: the transport has taken them."""


class _Mark(NamedTuple):
    """Once as many responses are gone as had *entered*, those of all records up to *sequence* are."""

    sequence: int
    entered: tuple[int, ...]


class JournalGate:
    """The gate of a core with a journal. Used from the event loop's thread only.

    *responses*: those that left through the gate; ``None``: nobody counts them.
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
        """The reason why nothing becomes durable; ``None``: all is well."""
        self._stopping = False
        self._bug: Exception | None = None
        self._news = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Returns how much waits to leave."""
        return len(self._queue)

    @property
    def behind(self) -> int:
        """Returns how many records are not durable yet."""
        return self._committer.added - self.durable

    def pass_on(self, act: Callable[[], None]) -> None:
        """Calls *act* once the record of the last call is durable, behind what was passed on before."""
        if not self._holds_back or (not self._queue and self._committer.added <= self.durable):
            act()
        else:
            self._queue.append((self._committer.added, act))
            self._committer.commit_soon()

    def check_intake(self) -> None:
        """Raises :class:`ServiceError` while the store takes nothing."""
        if self.problem is not None:
            raise _refusal_for(self.problem)

    async def wait_for_room(self) -> None:
        """Returns when the engine may go on. Raises :class:`ServiceError` when another core has taken over."""
        # What has been sent is known between two turns: nothing is decided and not yet passed on.
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
        """Returns when all records are durable and nothing waits. Raises :class:`ServiceError` if that never comes."""
        if self._holds_back:
            self._committer.commit_soon()
            while self.behind or self._queue:
                if self.problem is not None and (self.problem.lost or self._stopping):
                    raise _refusal_for(self.problem)
                self._news.clear()
                await self._news.wait()

    async def wait_until_durable(self) -> None:
        """Returns when all records are durable, whether or not anything waits for that. Raises :class:`ServiceError` if
        it never comes."""
        self._committer.commit_soon()
        while self.behind:
            if self.problem is not None and (self.problem.lost or self._stopping):
                raise _refusal_for(self.problem)
            self._news.clear()
            await self._news.wait()

    def stop(self) -> None:
        """Have nobody wait for a store that takes nothing."""
        self._stopping = True
        self._news.set()

    def note_durable(self, sequence: int) -> None:
        """Let out everything up to record *sequence*, which is durable."""
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
        """Note that the store takes nothing because of *problem*, or takes everything again."""
        self.problem = problem
        self._news.set()

    def _note_delivered(self) -> None:
        responses = self._responses()
        if responses is None:
            return
        gone = responses.count_gone()
        self._settle_mark(gone)
        if self._mark is None and self.durable > self._committer.delivered:
            # All that may leave has left, so the records that are durable have no other responses.
            self._mark = _Mark(self.durable, responses.count_entered())
            self._settle_mark(gone)

    def _settle_mark(self, gone: tuple[int, ...]) -> None:
        mark = self._mark
        if mark is not None and all(map(ge, gone, mark.entered)):
            self._committer.delivered = mark.sequence
            self._mark = None


def _refusal_for(problem: StoreProblem) -> ServiceError:
    if problem.full:
        return JournalFull(f"journal: {problem.text}; nothing is taken until there is room")
    return JournalUnavailable(f"journal: {problem.text}; nothing is taken until it can be written")
