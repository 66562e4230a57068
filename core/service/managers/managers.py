"""The resource managers of one core, each with an engine, a partition task, streams, callbacks and configurations.

Managers share no records, so what one of them sends, or fails at, affects the others only by the time that it takes of
the event loop, which the partition tasks use in turns. A core has one place for a manager from its start. The first
manager to register takes it; each further manager gets a place of its own, up to a bound. When a manager is
unregistered, its place is removed with everything in it, unless it is the last place.

Rules: protocol.md 1.1, 5.1, 5.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.commands import CommandRefused, Fault, RegisterManager, UnregisterManager
from kornel.core.service.callbacks.callback_board import CallbackBoard
from kornel.core.service.configuration.configuring import Configurator, Outcome
from kornel.core.service.runner.questions import Questions
from kornel.core.service.runner.runner import PartitionRunner
from kornel.core.service.streams.presence import PresenceKeeper
from kornel.core.service.streams.streams import Switchboard
from kornel.core.service.wire.status_codes import EngineFault, InvalidRequest, ManagerGone, NotFound, ServiceError
from kornel.core.telling.core_reader import CoreReader
from kornel.core.telling.reader import PartitionReader

LOOK_AGAIN_S: Final = 0.02
"""The pause between two checks whether a place that was given up has freed its records."""


class KeptHistory(Protocol):
    """The part of the durable history that belongs to one manager."""

    @property
    def wanted(self) -> bool:
        """Tells whether the history of this manager is to be kept."""


@dataclass(eq=False, slots=True)
class Place:
    """All that a core holds for one resource manager, or for the next one that registers.

    ``tell``: writes sentences about the manager or its configuration into the event history. ``meant_for``: the manager
    that was the last to register here, or to try. ``registering``: registrations under way. ``served``: a manager was
    registered here once. ``damaged``: after a bug, the state of its engine cannot be trusted.
    """

    runner: PartitionRunner
    switchboard: Switchboard
    callbacks: CallbackBoard
    presence: PresenceKeeper
    configurator: Configurator
    tell: Callable[[str], None]
    history: KeptHistory
    meant_for: str = ""
    registering: int = 0
    served: bool = False
    damaged: bool = False
    task: asyncio.Task[None] | None = None
    """The partition task, once started."""

    @property
    def rm_id(self) -> str:
        """The registered manager; empty: none."""
        return self.runner.rm_id

    @property
    def vacant(self) -> bool:
        """Tells whether no manager is registered here, or about to be."""
        return not self.runner.rm_id and not self.registering


class Lobby(NamedTuple):
    """The boards for streams whose manager is not known yet."""

    switchboard: Switchboard
    callbacks: CallbackBoard


class Managers:
    """All places of a core, the longest standing first."""

    def __init__(
        self,
        first: Place,
        *,
        lobby: Lobby,
        make: Callable[[], Place] | None = None,
        most: int,
        logger: FilteringBoundLogger,
        on_change: Callable[[], None] = lambda: None,
        on_given_up: Callable[[Place], None] = lambda place: None,
    ) -> None:
        """Prepares the managers. *lobby* serves streams until their first message names the manager. *make* makes
        another place; if it is absent, the core serves one manager at a time. *most* is the most managers at a time.

        *on_change* is called when a place was damaged, repaired or given up, and *on_given_up* with a place whose
        engine nobody needs any more.
        """
        self._make = make
        self.most: Final = most if make is not None else 1
        """The most managers at a time."""
        self._places = [first]
        self.lobby: Final = lobby
        self._logger = logger
        self._on_change = on_change
        self._on_given_up = on_given_up
        self._leaving: set[asyncio.Task[None]] = set()
        self._registering: set[asyncio.Task[Outcome]] = set()
        self._started = False
        self._stopping = False
        self.died: asyncio.Event = asyncio.Event()
        """Set when the partition task of the only place has died because of a bug, or that of any place because this
        core must not go on."""
        self.questions: Final = Questions()
        """The queue of questions that take long."""
        self.reader: Final = CoreReader(lambda: [place.runner.reader for place in self._places])
        """Reads the partitions of all managers."""
        self._adopt(first)

    @property
    def places(self) -> Sequence[Place]:
        """All places, also those where nobody is registered."""
        return tuple(self._places)

    @property
    def first(self) -> Place:
        """The place that has stood the longest."""
        return self._places[0]

    @property
    def registered(self) -> list[Place]:
        """The places where a manager is registered."""
        return [place for place in self._places if place.rm_id]

    @property
    def leader(self) -> Place:
        """The first place where a manager is registered; where none is, the first one.

        The extra settings of its manager apply to whatever a core has only once for all managers.
        """
        return next(iter(self.registered), self.first)

    @property
    def rm_id(self) -> str:
        """The first registered manager; empty: none."""
        return self.leader.rm_id

    def find(self, rm_id: str) -> Place | None:
        """Returns the place where *rm_id* is registered; ``None``: it is not."""
        return next((place for place in self._places if rm_id and place.rm_id == rm_id), None)

    def place_for(self, rm_id: str) -> Place:
        """Returns the place that handles a request of *rm_id*; the request of an unknown manager is refused there in
        its turn."""
        return self.find(rm_id) or self.first

    def choose(self, rm_id: str) -> Place:
        """Returns the place for a request that may name a manager, and must if there are several.

        Raises :class:`NotFound`, or :class:`InvalidRequest` if the name is missing.
        """
        if rm_id:
            found = self.find(rm_id)
            if found is None:
                raise NotFound(f"resource manager {rm_id!r} is not registered")
            return found
        found_all = self.registered
        if len(found_all) > 1:
            names = ", ".join(repr(place.rm_id) for place in found_all)
            raise InvalidRequest(f"the resource managers {names} are registered: name one of them")
        return found_all[0] if found_all else self.first

    def find_partition(self, name: str) -> PartitionReader:
        """Returns the partition called *name*, or ``default`` for an empty name. Raises :class:`NotFound`."""
        found = self.reader.get(name)
        if found is not None:
            return found
        shown = name or "default"
        if not self.rm_id:
            raise NotFound(f"no resource manager is registered, so there is no partition {shown!r} yet")
        raise NotFound(f"no partition {shown!r}")

    async def register(self, command: RegisterManager) -> Outcome:
        """Register a manager at the place it has, or at a new one. Raises the engine's errors."""
        place = self._find_room(command.rm_id)
        place.registering += 1
        place.meant_for = command.rm_id
        # The task goes on if its caller is gone, and the place is not vacant before the task ends.
        task = asyncio.create_task(place.configurator.register(command))
        self._registering.add(task)
        task.add_done_callback(partial(self._note_registered, place))
        return await asyncio.shield(task)

    def _note_registered(self, place: Place, task: asyncio.Task[Outcome]) -> None:
        self._registering.discard(task)
        place.registering -= 1
        if not task.cancelled() and task.exception() is None:
            place.served = True
        elif place.vacant and not place.served and place is not self.first and not self._stopping:
            # The place holds nothing that anybody could come back for; a manager that tries again gets another one.
            self._give_up(place, ManagerGone("the registration failed; register again"))

    async def unregister(self, rm_id: str) -> Place:
        """Remove a manager with all that it has. Returns its place, which is removed too unless it is the last one."""
        place = self.place_for(rm_id)
        await place.runner.call(UnregisterManager(rm_id))
        if len(self._places) > 1 and place.vacant:
            self._give_up(place, ManagerGone(f"resource manager {rm_id!r} was unregistered"))
        return place

    def _find_room(self, rm_id: str) -> Place:
        """Returns the place at which *rm_id* is to register."""
        for place in self._places:
            if rm_id and rm_id in (place.rm_id, place.meant_for if not place.rm_id else ""):
                return place
        if not rm_id or self.most == 1:
            return self.first
        vacant = [place for place in self._places if place.vacant]
        every = len(vacant) == len(self._places)
        if every and (self.first.served or not self.first.meant_for):
            return self.first
        full = len(self._places) >= self.most
        if full and not vacant:
            names = ", ".join(repr(place.rm_id or place.meant_for) for place in self._places)
            raise CommandRefused(
                Fault.OTHER_MANAGER,
                f"the resource managers {names} are registered, and this core serves {self.most} at most"
                " (--managers): unregister one that is not needed (`kornel unregister`), or start another core",
            )
        assert self._make is not None
        place = self._make()
        self.add_place(place)
        if full or every:  # The only place keeps the configurations with which another manager was refused.
            self._give_up(vacant[0], ManagerGone("another resource manager has taken the place; register again"))
        return place

    def add_place(self, place: Place) -> None:
        """Add *place* behind the others."""
        self._adopt(place)
        self._places.append(place)
        if self._started:
            self._start_task(place)

    def follow_places(self, places: Sequence[Place]) -> None:
        """Keep exactly *places*, in their order, which are those of the core that this one follows. There must be at
        least one."""
        for place in self.places:
            if place not in places:
                self._give_up(place, ManagerGone("the resource manager was unregistered"))
        for place in places:
            if place not in self._places:
                self.add_place(place)
        self._places.sort(key=list(places).index)

    def _adopt(self, place: Place) -> None:
        place.runner.reader.shown_name = self.reader.shown_name
        place.runner.questions = self.questions

    def _give_up(self, place: Place, error: Exception) -> None:
        """Remove *place*: end its streams, and free its records a few at a time."""
        if place not in self._places:
            return
        self._places.remove(place)
        self._on_given_up(place)
        self._on_change()
        task = asyncio.create_task(self._close_place(place, error), name="give up a place")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _close_place(self, place: Place, error: Exception) -> None:
        for end_all in (place.switchboard.finish_all, place.callbacks.finish_all):
            end_all(error)
        while not self._stopping and not place.runner.asleep and place.task is not None and not place.task.done():  # noqa: ASYNC110 - a few checks, once in a manager's life
            await asyncio.sleep(LOOK_AGAIN_S)
        place.presence.stop()
        place.runner.stop()
        if place.task is not None:
            await asyncio.gather(place.task, return_exceptions=True)
        await place.configurator.close()

    def note_damage(self, place: Place, *, damaged: bool) -> None:
        """Note that the engine of *place* can no longer be trusted, or can again."""
        place.damaged = damaged
        self._on_change()

    @property
    def damaged(self) -> bool:
        """Tells whether no manager has an engine that can be trusted."""
        return all(place.damaged for place in self.registered or self._places)

    @property
    def one_damaged(self) -> bool:
        """Tells whether the engine of at least one manager cannot be trusted."""
        return any(place.damaged for place in self._places)

    @property
    def intake_waiting(self) -> int:
        """Commands and answers that wait for their turn."""
        return sum(place.runner.intake_waiting for place in self._places)

    @property
    def asleep(self) -> bool:
        """Tells whether no engine has anything to do before time passes or input comes."""
        return all(place.runner.asleep for place in self._places)

    async def wait_until_idle(self) -> None:
        """Return once there is nothing to do before time passes or input comes. Raises ``ShuttingDown``."""
        while True:
            for place in self.places:
                await place.runner.wait_until_idle()
            if self.asleep:
                return

    async def follow_file(self, text: str) -> None:
        """Apply the file's new *text* to every manager, including managers that register meanwhile.

        Raises :class:`ServiceError` if a manager cannot take a configuration now.
        """
        followed: set[Place] = set()
        refused: ServiceError | None = None
        while (place := next((each for each in self._places if each not in followed), None)) is not None:
            followed.add(place)
            try:
                await place.configurator.follow_file(text)
            except ServiceError as error:
                if place in self._places:
                    refused = error
        if refused is not None:
            raise refused

    def report_problem(self, problem: str) -> None:
        """Note that the file cannot be used because of *problem*."""
        for place in self._places:
            place.configurator.report_problem(problem)

    @property
    def problem(self) -> str:
        """The first problem that a manager's configuration has with the file; empty: none."""
        return next((place.configurator.problem for place in self._places if place.configurator.problem), "")

    @property
    def absence(self) -> str:
        """One sentence for each manager that is gone; empty if all are there."""
        gone = [place.runner.presence for place in self._places]
        return "; ".join(found.words for found in gone if found is not None and found.words)

    def start(self) -> None:
        """Start the partition tasks."""
        self._started = True
        for place in self._places:
            if place.rm_id:  # It goes on where another core ended.
                place.served, place.meant_for = True, place.rm_id
            self._start_task(place)

    async def stop(self) -> None:
        """Let the partition tasks finish what is queued, and wait for them."""
        self._stopping = True
        for place in self._places:
            place.presence.stop()
            place.runner.stop()
        for place in self._places:
            if place.task is not None:
                try:
                    await place.task
                except Exception:  # noqa: BLE001 - its death was reported already, and stopping goes on
                    self._logger.debug("stopped after the partition task had died")
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def finish_streams(self, error: Exception) -> None:
        """End every open stream with *error* after it has sent what waits for it."""
        for switchboard in (self.lobby.switchboard, *(place.switchboard for place in self._places)):
            switchboard.finish_all(error)
        for callbacks in (self.lobby.callbacks, *(place.callbacks for place in self._places)):
            callbacks.finish_all(error)

    async def close(self) -> None:
        """Stops the work on configurations."""
        for place in self._places:
            await place.configurator.close()

    def _start_task(self, place: Place) -> None:
        place.task = asyncio.create_task(place.runner.run(), name="partition")
        place.task.add_done_callback(lambda task: self._note_end(place, task))

    def _note_end(self, place: Place, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if isinstance(error, ServiceError):
            self._logger.error("this core must not go on", rm_id=place.rm_id, problem=str(error))
        else:
            self._logger.critical("the partition task died", rm_id=place.rm_id, exc_info=error)
        if self._stopping or place not in self._places:
            return
        # An error of the service concerns all places: another core has taken over.
        if len(self._places) == 1 or isinstance(error, ServiceError):
            self.died.set()
        else:
            self._give_up(place, EngineFault("internal error; see the log of the core"))
