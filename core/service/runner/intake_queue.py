"""The bounded queue that everything for one engine passes, in order of arrival.

A sender that fills it faster than it empties has to wait, so nothing is ever dropped (protocol.md DB-13). It is bounded
in two ways: by the number of its items, and for commands of streams by the number of their entries as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kornel.core.config.model import Configuration
from kornel.core.domain.allocation_ids import MOST_INSTANCES
from kornel.core.domain.commands import (
    Command,
    PreemptByHand,
    RegisterManager,
    SetOperatorDrain,
    StreamCommand,
    UnregisterManager,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import PreemptionDecided
from kornel.core.service.streams.sessions import NO_SESSION, Session
from kornel.core.service.streams.streams import Stream
from kornel.core.service.wire.status_codes import ShuttingDown


def size_of_command(command: StreamCommand) -> int:
    """Returns the number of entries of *command* plus 1."""
    if isinstance(command, UpdateAllocations):
        return 1 + _allocations_meant(command) + len(command.ask_releases) + len(command.releases)
    if isinstance(command, UpdateNodes):
        return 1 + len(command.nodes)
    return 1 + len(command.add) + len(command.remove)


def _allocations_meant(command: UpdateAllocations) -> int:
    """Returns how many asks and allocations *command* stands for. One ask of the older generation may stand for many;
    such asks come last."""
    specs = command.allocations
    if not specs or not specs[-1].legacy:
        return len(specs)
    return sum(min(max(1, spec.max_allocations), MOST_INSTANCES) for spec in specs)


def count_entries(command: Command) -> int:
    """Returns the number of entries of the request from which *command* was made; 0 for one that no stream carries."""
    if isinstance(command, UpdateAllocations):
        return len(command.allocations) + len(command.ask_releases) + len(command.releases)
    if isinstance(command, UpdateNodes):
        return len(command.nodes)
    if isinstance(command, UpdateApplications):
        return len(command.add) + len(command.remove)
    return 0


INTAKE_LIMIT: Final = 128
"""The most commands that wait."""

ENTRIES_PER_TURN: Final = 100
"""The number of entries after which other tasks, and then the next slice, get their turn; a command is never split.

They are fewer than a slice decides, so that new asks are decided while they are still in the processor's caches.
"""

FEW_ENTRIES: Final = 8
"""The most entries of a command that need not wait for room in the queue, which :data:`INTAKE_LIMIT` bounds."""

CallCommand = RegisterManager | UnregisterManager | UpdateConfiguration | SetOperatorDrain | PreemptByHand


@dataclass(frozen=True, slots=True)
class FromStream:
    """A command that came on *stream*, with the number of its entries."""

    stream: Stream
    command: StreamCommand
    entries: int


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The end of *stream*, once everything queued before is done."""

    stream: Stream
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Turn:
    """An act for a callback stream that has to wait for its turn."""

    act: Callable[[], None]
    entries: int = 0


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """The effect on the configuration of a command that does not belong to a stream. ``decided``: the decisions about
    preemption that it led to."""

    changed: bool
    checksum: str
    decided: tuple[PreemptionDecided, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A command that does not belong to a stream, and whose caller waits for the *answer*."""

    command: CallCommand
    answer: asyncio.Future[ConfigurationChange]
    configuration: Configuration | None = None
    session: Session = NO_SESSION


Item = FromStream | EndOfStream | Turn | Call


class IntakeQueue:
    """The queue of one engine. *wake* is called whenever something has arrived."""

    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        self._items: asyncio.Queue[Item] = asyncio.Queue(limit)
        self._wake = wake
        self._entries = 0
        """The number of entries of the commands of streams that wait."""
        self._room = asyncio.Event()
        self.closed = False
        """Tells whether nothing more is accepted."""

    @property
    def waiting(self) -> int:
        """The number of items that wait for their turn."""
        return self._items.qsize()

    async def put_command(self, stream: Stream, command: StreamCommand) -> None:
        """Queues *command*, which came on *stream*; waits while the queue is full. Raises :class:`ShuttingDown`.

        If a stream sends very much, only the entries of about one turn are in the queue, so others do not wait for more
        than that.
        """
        entries = size_of_command(command)
        while entries > FEW_ENTRIES and self._entries >= ENTRIES_PER_TURN and not self.closed:
            self._room.clear()
            await self._room.wait()
        self._entries += entries
        try:
            await self.put(FromStream(stream, command, entries))
        except BaseException:
            self._entries -= entries
            raise

    async def put(self, item: Item) -> None:
        """Queues *item*; waits while the queue is full. Raises :class:`ShuttingDown`."""
        if self.closed:
            raise ShuttingDown("the core is shutting down")
        await self._items.put(item)
        self._wake()

    def take(self) -> Item:
        """Removes the next item, of which there has to be one, and returns it."""
        item = self._items.get_nowait()
        if isinstance(item, FromStream):
            self._entries -= item.entries
        return item

    def offer_room(self) -> None:
        """Lets senders go on that wait for room, if there is some now."""
        if self._entries < ENTRIES_PER_TURN:
            self._room.set()

    def close(self) -> None:
        """Accepts nothing more, and lets senders that wait for room learn that."""
        self.closed = True
        self._room.set()

    def turn_away(self) -> None:
        """Drops what is left, and answers the calls among it, which came too late."""
        late = ShuttingDown("the core is shutting down")
        while self.waiting:
            item = self.take()
            if isinstance(item, Call) and not item.answer.done():
                item.answer.set_exception(late)
