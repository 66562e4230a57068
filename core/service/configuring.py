"""The one way in which configurations come into force: registration, update call, file and rollback all pass here.

A text is read in a thread of its own, so that scheduling goes on meanwhile, and reaches the engine together with its
meaning. One at a time: versions are numbered in the order in which they take effect.

Which text holds: the one a manager sends; where it sends none, the file; without a file the built-in default. A changed
file is applied only while it is the file that holds; otherwise it is what the next empty text stands for.
Rules: protocol.md 5.4, config.md 1.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

from core.config.loader import load
from core.config.model import Configuration
from core.config.problems import ConfigError, Problem
from core.config.rereading import ConfigurationReader
from core.config.sharing import share
from core.domain.commands import CommandRefused, RegisterManager, UpdateConfiguration
from core.domain.impact import Impact
from core.service.clock import Clock
from core.service.configuration_history import ConfigurationHistory, Origin, Version
from core.service.garbage import GarbageKeeper
from core.service.runner import PartitionRunner
from core.service.status_codes import NothingRegistered, UnknownVersion, VersionNotApplied

MOST_LOGGED: Final = 20
"""Problems of one text that are logged one by one."""


class EmptyFile(Exception):
    """A file without text: more likely lost than meant."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a configuration. ``version``: the one in force now."""

    changed: bool
    checksum: str
    version: int
    warnings: tuple[Problem, ...]


class Configurator:
    """Puts configurations into force and remembers them.

    ``default``: what an empty text stands for, itself empty for the built-in one; a good file replaces it.
    ``on_problem`` is told what is wrong with the file, and with empty text that nothing is any more.
    ``on_version`` is told of every configuration that came into force or was refused.
    ``unavailable_resolvers``: types of resolver that no configuration may ask for here, with the reason.
    """

    def __init__(
        self,
        runner: PartitionRunner,
        *,
        clock: Clock,
        logger: FilteringBoundLogger,
        garbage: GarbageKeeper,
        default: str = "",
        on_problem: Callable[[str], None] = lambda problem: None,
        on_version: Callable[[Version], None] = lambda version: None,
        unavailable_resolvers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._logger = logger
        self._garbage = garbage
        self._default = default
        self._on_problem = on_problem
        self._on_version = on_version
        self._reader = ConfigurationReader(unavailable_resolvers)
        self._one_reads = threading.Lock()
        """A thread goes on reading when whoever waited for it is gone, so this is not for tasks but for threads."""
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[Outcome]] = set()
        self._file_holds = True
        self._last = UpdateConfiguration(rm_id="", config="")
        """The last command that was accepted: a file or a rollback replaces its text and nothing else."""
        self.history = ConfigurationHistory()
        self.problem = ""
        """What is wrong with the file; empty: nothing."""

    async def register(self, command: RegisterManager) -> Outcome:
        """Start afresh for a manager. Raises as the engine does."""
        return await self._to_the_end(self._register(command))

    async def update(self, command: UpdateConfiguration) -> Outcome:
        """Replace the configuration of the registered manager. Raises as the engine does."""
        return await self._to_the_end(self._update(command))

    async def rollback(self, number: int) -> Outcome:
        """Put version *number* into force again, as a new version. Raises also for one that cannot be had."""
        return await self._to_the_end(self._rollback(number))

    async def _register(self, command: RegisterManager) -> Outcome:
        text = command.config or self._default
        async with self._one_at_a_time:
            outcome = await self._apply(replace(command, config=text), Origin.REGISTRATION)
            self._file_holds = not command.config
            self._last = UpdateConfiguration(
                rm_id=command.rm_id, config=text, policy_group=command.policy_group, extra_config=command.extra_config
            )
        self._logger.info(
            "resource manager registered",
            rm_id=command.rm_id,
            version=command.version,
            policy_group=command.policy_group,
            checksum=outcome.checksum,
            configuration=outcome.version,
        )
        return outcome

    async def _update(self, command: UpdateConfiguration) -> Outcome:
        async with self._one_at_a_time:
            outcome = await self._apply(replace(command, config=command.config or self._default), Origin.UPDATE)
            self._file_holds = not command.config
            self._last = command
        return outcome

    async def _rollback(self, number: int) -> Outcome:
        async with self._one_at_a_time:
            version = self.version(number)
            if not version.applied:
                raise VersionNotApplied(f"version {number} was refused: {version.reason}")
            return await self._apply(replace(self._last, rm_id=self._manager(), config=version.text), Origin.ROLLBACK)

    async def follow_file(self, text: str) -> None:
        """The file now says *text*. Never raises for what it says: a bad one changes nothing but ``problem``."""
        async with self._one_at_a_time:
            try:
                if not text.strip():
                    raise EmptyFile("the file is empty")
                if self._runner.rm_id and self._file_holds:
                    await self._apply(replace(self._last, rm_id=self._runner.rm_id, config=text), Origin.FILE)
                elif text != self._default:
                    await self._read(text)
                    self._logger.info("configuration file read; it holds for whoever sends no configuration")
            except (ConfigError, CommandRefused, EmptyFile) as error:
                self.report(str(error))
                return
            self._default = text
            self.report("")

    def report(self, problem: str) -> None:
        """The file cannot be used, for the reason of *problem*; empty: it can."""
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            self._logger.error("configuration file not applied, the one in force stays", problem=problem)
        else:
            self._logger.info("configuration file is good again")
        self._on_problem(problem)

    async def preview(self, text: str) -> tuple[Impact, tuple[Problem, ...]]:
        """What *text* would change, and its warnings. Changes nothing. Raises ConfigError."""
        self._manager()
        configuration = await self._read(text or self._default)
        what_if = self._runner.what_if()
        impact = await asyncio.to_thread(what_if.preview, configuration)
        return impact, configuration.warnings

    async def judge(self, text: str) -> Configuration:
        """*text*, or what stands for an empty one, read and checked. Raises ConfigError."""
        return await self._read(text or self._default)

    def version(self, number: int) -> Version:
        """Version *number*, 0 for the one in force. Raises :class:`UnknownVersion`."""
        wanted = number or self.in_force
        version = self.history.get(wanted) if wanted else None
        if version is None:
            raise UnknownVersion(f"no version {number} is kept" if number else "no configuration is in force")
        return version

    @property
    def in_force(self) -> int:
        """Number of the version that holds; 0 while nobody is registered."""
        return self.history.in_force if self._runner.rm_id else 0

    async def _to_the_end(self, change: Coroutine[None, None, Outcome]) -> Outcome:
        """A caller that goes away must not leave a configuration in force that was never written down."""
        task = asyncio.create_task(change)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    def _manager(self) -> str:
        if not self._runner.rm_id:
            raise NothingRegistered("no resource manager is registered, so no configuration is in force")
        return self._runner.rm_id

    async def _apply(self, command: RegisterManager | UpdateConfiguration, origin: Origin) -> Outcome:
        """Read the text, let the engine apply it, and write down what came of it."""
        read: Configuration | None = None
        try:
            if self._serves(command):
                read = await self._read(command.config)
        except ConfigError as error:
            self._refuse(command, origin, str(error), error.problems)
            if isinstance(command, UpdateConfiguration) or await self._works_elsewhere(command.config):
                raise
            # The engine has to hear of it all the same: a registration that fails leaves nobody registered.
        try:
            change = await self._runner.call(command, read)
        except CommandRefused as error:
            if read is not None:
                self._refuse(command, origin, str(error), read.warnings, read.checksum)
            raise
        warnings = read.warnings if read is not None else ()
        if change.changed or isinstance(command, RegisterManager):
            version = self.history.add(
                at_ns=self._clock.now_ns(),
                origin=origin,
                rm_id=command.rm_id,
                text=command.config,
                checksum=change.checksum,
                problems=warnings,
            )
            self._on_version(version)
        if not isinstance(command, RegisterManager):
            self._logger.info(
                "configuration updated",
                origin=str(origin),
                rm_id=command.rm_id,
                changed=change.changed,
                checksum=change.checksum,
                version=self.history.in_force,
            )
        for warning in warnings[:MOST_LOGGED] if change.changed else ():
            self._logger.warning("configuration", problem=str(warning))
        return Outcome(change.changed, change.checksum, self.history.in_force, warnings)

    async def _read(self, text: str) -> Configuration:
        """What *text* says, equal parts shared with the configuration in force. Raises ConfigError."""
        in_force = self._runner.configuration

        def read() -> Configuration:
            with self._one_reads:
                return share(self._reader.load(text), in_force)

        with self._garbage.building():
            return await asyncio.to_thread(read)

    async def _works_elsewhere(self, text: str) -> bool:
        """Whether the engine, which knows nothing of what works here, would take the refused *text*."""
        try:
            await asyncio.to_thread(load, text)
        except ConfigError:
            return False
        return True

    def _serves(self, command: RegisterManager | UpdateConfiguration) -> bool:
        """Whether *command* comes from somebody whose configuration counts; anybody else is refused unread."""
        if isinstance(command, RegisterManager) and not self._runner.rm_id:
            return bool(command.rm_id)
        return bool(command.rm_id) and command.rm_id == self._runner.rm_id

    def _refuse(
        self,
        command: RegisterManager | UpdateConfiguration,
        origin: Origin,
        reason: str,
        problems: tuple[Problem, ...],
        checksum: str = "",
    ) -> None:
        self._logger.warning("configuration refused", origin=str(origin), rm_id=command.rm_id, problem=reason)
        if self.history.refused_last(command.config, reason):
            return  # Somebody insists; the versions worth going back to must not be pushed out by that.
        version = self.history.add(
            at_ns=self._clock.now_ns(),
            origin=origin,
            rm_id=command.rm_id,
            text=command.config,
            checksum=checksum,
            reason=reason,
            problems=problems,
        )
        self._on_version(version)
