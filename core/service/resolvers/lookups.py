"""Looks up the groups for the applications of a request before the engine sees it (config.md 11, protocol.md 6.1).

The engine gets the result as part of its command, so it does no look-ups, and a replay of its commands needs no
resolver. The reader of a stream waits here with one request, so the order of its stream is kept, and no other stream
waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.commands import ApplicationSpec, UpdateApplications
from kornel.core.domain.names import is_user_name
from kornel.core.service.machine.clock import Clock
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.resolvers.cache import Answer, GroupCache, Person
from kornel.core.service.resolvers.source import GroupSource, Unresolved

AT_ONCE: Final = 16
"""The most look-ups under way at a time; each has a thread, because every resolver blocks."""

PATIENCE_S: Final = 30.0
"""The time that a request waits for a look-up, including the wait for a thread. It is real time, whatever the clock of
the service shows."""


class GroupLookups:
    """Looks up the groups of users that were submitted without groups. *sources*: the resolvers by type. *resolver_of*
    returns the type in force in a partition, given its full name."""

    def __init__(
        self,
        sources: Mapping[str, GroupSource],
        resolver_of: Callable[[str], str],
        *,
        clock: Clock,
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._sources = sources
        self._resolver_of = resolver_of
        self._metrics = metrics
        self._logger = logger
        self._patience_s = patience_s
        self._cache = GroupCache(clock)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="groups")
        self._under_way: dict[Person, asyncio.Task[Answer]] = {}

    async def add_groups(self, command: UpdateApplications) -> UpdateApplications:
        """Returns *command* with the known groups of every user that came without any."""
        persons = [self._person_of(spec) for spec in command.add]
        wanted = dict.fromkeys(person for person in persons if person is not None)
        if not wanted:
            return command
        answers = {person: self._cache.get(person) for person in wanted}
        tasks = {person: self._look_up(person) for person, known in answers.items() if known is None}
        if tasks:
            await asyncio.wait(tasks.values())
            answers.update({person: task.result() for person, task in tasks.items()})
        return replace(
            command,
            add=tuple(
                spec if answer is None else spec._replace(looked_up=answer.groups, unresolved=answer.unresolved)
                for spec, person in zip(command.add, persons, strict=True)
                for answer in [answers[person] if person is not None else None]
            ),
        )

    async def close(self) -> None:
        """Gives up the look-ups under way. A thread that is stuck in a call ends with that call."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._cache.close()

    def _person_of(self, spec: ApplicationSpec) -> Person | None:
        """Returns the user to look up for *spec*, or ``None`` if there is none. A name that is not legal is left to the
        engine, which refuses it."""
        if spec.groups or not is_user_name(spec.user):
            return None
        resolver = self._resolver_of(spec.partition)
        return Person(resolver, spec.user) if resolver else None

    def _look_up(self, person: Person) -> asyncio.Task[Answer]:
        """Returns the look-up of *person* that is under way, or a new one, so that simultaneous requests share it."""
        task = self._under_way.get(person)
        if task is None:
            # The task does not belong to the reader: if its stream ends, others may still wait for the answer, and the
            # cache keeps it.
            task = self._under_way[person] = asyncio.create_task(self._ask(person), name=f"groups of {person.user}")
            task.add_done_callback(lambda _: self._under_way.pop(person))
        return task

    async def _ask(self, person: Person) -> Answer:
        self._metrics.group_lookups += 1
        try:
            groups = await self._ask_source(person)
            answer = Answer(groups)
        except Unresolved as error:
            self._metrics.group_lookups_failed += 1
            self._logger.warning("groups not found", user=person.user, resolver=person.resolver, cause=str(error))
            answer = Answer((), str(error))
        self._cache.put(person, answer)
        return answer

    async def _ask_source(self, person: Person) -> tuple[str, ...]:
        """Returns the groups of *person*. Raises :class:`Unresolved` and no other error."""
        source = self._sources.get(person.resolver)
        if source is None:
            raise Unresolved(f"resolver {person.resolver!r} does not work here")
        asked = asyncio.get_running_loop().run_in_executor(self._threads, source.groups_of, person.user)
        try:
            return await asyncio.wait_for(asked, self._patience_s)
        except TimeoutError:
            raise Unresolved(f"resolver {person.resolver!r} took longer than {self._patience_s:g} s") from None
        except Unresolved:
            raise
        except Exception as error:
            self._logger.error("bug in a resolver", user=person.user, resolver=person.resolver, exc_info=error)
            raise Unresolved(f"resolver {person.resolver!r} failed, see the log of the core") from error
