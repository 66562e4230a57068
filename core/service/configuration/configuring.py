"""Puts configurations into force. Registration, update calls, the file and rollbacks all pass through this module.

A text is parsed in a separate thread, so that scheduling goes on meanwhile, and reaches the engine together with the
parsed configuration. This is done for one text at a time, because versions are numbered in the order in which they take
effect. Texts that are only validated or previewed wait for each other. They do not wait for texts that are to come into
force, and these do not wait for them.

The text in force is the one that a manager sends; if it sends none, the file; without a file, the built-in default. A
changed file is applied at once only if the file is in force; otherwise it is used for the next empty text. While a
rollback is in force, texts that were sent before it are compared and not applied
(:mod:`kornel.core.service.configuration.rollbacks`). Rules: protocol.md 5.4, config.md 1.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.loader import load
from kornel.core.config.model import Configuration
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text.problems import ConfigError, Problem, Severity
from kornel.core.domain.commands import CommandRefused, RegisterManager, UpdateConfiguration
from kornel.core.domain.names import show_name
from kornel.core.domain.secrets import HIDDEN
from kornel.core.service.configuration.configuration_history import (
    ConfigurationHistory,
    ConfigurationNote,
    ConfigurationState,
    Origin,
    Version,
)
from kornel.core.service.configuration.judging import MOST_PREVIEWS, SMALL, Judge
from kornel.core.service.configuration.reading_process import Judgement, Untried, request_messages, try_on
from kornel.core.service.configuration.rollbacks import Fate, Rollback, Verdict, judge_text
from kornel.core.service.connections.callers import caller, principal
from kornel.core.service.machine.clock import Clock
from kornel.core.service.machine.garbage import GarbageKeeper
from kornel.core.service.runner.runner import PartitionRunner
from kornel.core.service.wire.status_codes import (
    EngineFault,
    InvalidRequest,
    NoRollback,
    NotFound,
    NothingRegistered,
    TooMany,
    VersionNotApplied,
)
from kornel.core.telling.configuration.configuration_preview import ConfigurationPreview

MOST_LOGGED: Final = 20
"""The most problems of one text that are logged one by one."""

MOMENT_S: Final = 0.01

THE_FILE: Final = "file"
"""The principal of a configuration from the core's file, whose author is unknown."""


class EmptyFile(Exception):
    """The file is empty, which is more likely an accident than meant."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of applying a configuration. ``version``: the version in force now."""

    changed: bool
    checksum: str
    version: int
    warnings: tuple[Problem, ...]


class Configurator:
    """Puts configurations into force and remembers them.

    ``on_note`` gets the changes that the next core has to know.

    ``default``: the text used for an empty one; itself empty for the built-in default; a valid file replaces it.
    ``on_problem`` gets the problem with the file, and an empty text once it is solved. ``on_version`` gets every
    configuration that came into force or was refused; ``on_rollback`` gets a sentence about each rollback that begins
    or ends. ``judge`` validates texts that are not to come into force.
    """

    def __init__(
        self,
        runner: PartitionRunner,
        *,
        clock: Clock,
        logger: FilteringBoundLogger,
        garbage: GarbageKeeper,
        judge: Judge,
        default: str = "",
        on_problem: Callable[[str], None] = lambda problem: None,
        on_version: Callable[[Version], None] = lambda version: None,
        on_rollback: Callable[[str], None] = lambda said: None,
        on_note: Callable[[ConfigurationNote], None] = lambda note: None,
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._logger = logger
        self._garbage = garbage
        self.default_text = default
        """The text used for an empty one; itself empty for the built-in default."""
        self._on_problem = on_problem
        self._on_version = on_version
        self._on_rollback = on_rollback
        self._on_note = on_note
        self._noted = (0, ConfigurationState())
        """The number of the last version and the state that were noted for the next core."""
        self.judge: Final = judge
        self._reader = ConfigurationReader(judge.unavailable_resolvers)
        self._preview_reader = ConfigurationReader(judge.unavailable_resolvers)
        self._one_previews = asyncio.Lock()
        self._previews: set[asyncio.Task[bytes]] = set()
        self._one_reads = threading.Lock()
        """A lock between threads and not between tasks, because a thread goes on parsing when its task is cancelled."""
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[Outcome]] = set()
        self._file_holds = True
        self._brought = ""
        """The manager's latest text; empty: the text of the file is used."""
        self._brought_by: dict[Origin, str] = {}
        """The last text that came in each way."""
        self.rollback_held: Rollback | None = None
        """The rollback in force; ``None``: the text of the manager or of the file is in force."""
        self._last = UpdateConfiguration(rm_id="", config="")
        """The last command that was accepted; a file or a rollback replaces only its text."""
        self.history = ConfigurationHistory()
        self.problem = ""
        """The problem with the file; empty: none."""

    def remember(self, kept: ConfigurationNote) -> None:
        """Continue with the versions and the state that another core has noted."""
        self.history = ConfigurationHistory()
        for version in kept.versions:
            self.history.take_version(version)
        state = kept.state
        self._brought, self._file_holds, self._last = state.brought, state.file_holds, state.last
        self._brought_by = {Origin(origin): text for origin, text in state.brought_by}
        self.rollback_held = state.rollback
        self._noted = (self.history.last, state)

    def go_on(
        self,
        command: RegisterManager | UpdateConfiguration,
        at_ns: int,
        note: str = "in force when the core before this one ended",
    ) -> None:
        """Continue from *command*, which another core accepted at *at_ns*; the engine has its configuration already.

        If the text is the one in force according to :meth:`remember`, the remembered state stays as it is.
        """
        configuration = self._runner.configuration
        assert configuration is not None, "a manager is registered"
        last = self.history.get(0)
        if last is not None and (last.text, last.rm_id) == (command.config, command.rm_id):
            return
        self.rollback_held = None
        self._file_holds = command.of_file
        self._brought = "" if command.of_file else command.config
        self._last = UpdateConfiguration(
            command.rm_id, command.config, command.policy_group, command.extra_config, command.of_file
        )
        by_update = Origin.FILE if command.of_file else Origin.UPDATE
        self.history.add(
            at_ns=at_ns,
            origin=Origin.REGISTRATION if isinstance(command, RegisterManager) else by_update,
            rm_id=command.rm_id,
            text=command.config,
            checksum=configuration.checksum,
            problems=configuration.warnings,
            note=note,
        )

    @property
    def lags_behind(self) -> bool:
        """Tells whether the file should be in force but differs from the text in force, because it changed between two
        cores."""
        return bool(self._runner.rm_id) and self._file_holds and self._last.config != self.default_text

    async def register(self, command: RegisterManager) -> Outcome:
        """Register a manager with the configuration that it brings. Raises the engine's errors."""
        return await self._to_the_end(self._register(command))

    async def update(self, command: UpdateConfiguration) -> Outcome:
        """Replace the configuration of the registered manager. Raises what the engine raises."""
        return await self._to_the_end(self._update(command))

    async def update_text(self, text: str) -> Outcome:
        """Replace the queue configuration of the registered manager, and keep its other settings. Raises what
        :meth:`update` raises, and also if no manager is registered or the caller may not act for it.
        """
        manager = self._manager_id()
        caller().require_no_other_manager(manager)
        return await self.update(replace(self._last, rm_id=manager, config=text))

    async def rollback(self, number: int) -> Outcome:
        """Put version *number* into force again, as a new version. Raises an error also if there is no such version."""
        return await self._to_the_end(self._rollback(number))

    async def undo_rollback(self) -> Outcome:
        """Put the last text of the manager or of the file into force. Raises an error also if no rollback is in
        force."""
        return await self._to_the_end(self._undo_rollback())

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """Makes one change of the configuration, and notes it for the next core before it ends."""
        async with self._one_at_a_time:
            try:
                yield
            finally:
                state = ConfigurationState(
                    self._brought,
                    tuple((str(origin), text) for origin, text in self._brought_by.items()),
                    self._file_holds,
                    self._last,
                    self.rollback_held,
                )
                versions = self.history.list_since(self._noted[0])
                if versions or state != self._noted[1]:
                    self._noted = (self.history.last, state)
                    self._on_note(ConfigurationNote(versions, state))
                    await self._runner.wait_recorded()

    async def _register(self, command: RegisterManager) -> Outcome:
        # A caller that sends marks instead of secrets has lost them, so the present registration stays as it is.
        _refuse_marks(command.extra_config)
        async with self._change():
            self._remember_registered(command)
            verdict = judge_text(self.rollback_held, command.config or self.default_text, command.rm_id)
            of_file = not command.config and verdict.fate is not Fate.KEPT_OUT
            accepted = replace(command, config=verdict.text, of_file=of_file)
            outcome = await self._apply(accepted, Origin.REGISTRATION, verdict.note)
            self._take_note(Origin.REGISTRATION, command.config, verdict)
            self._last = UpdateConfiguration(
                rm_id=command.rm_id,
                config=verdict.text,
                policy_group=command.policy_group,
                extra_config=command.extra_config,
            )
        self._logger.info(
            "resource manager registered",
            rm_id=command.rm_id,
            version=command.version,
            policy_group=command.policy_group,
            checksum=outcome.checksum,
            configuration=outcome.version,
            by=principal(),
        )
        return outcome

    def _remember_registered(self, command: RegisterManager) -> None:
        """Count the text of *command* among those from before the rollback if any registration has brought it, not only
        the last one: one of several replicas of a shim that starts again wants no other configuration."""
        held = self.rollback_held
        if held is not None and command.config not in held.brought:
            found = (version for version in self.history.list_since(0) if version.origin is Origin.REGISTRATION)
            if any(version.text == command.config and version.applied for version in found):
                self.rollback_held = replace(held, brought=held.brought | {command.config})

    async def _update(self, command: UpdateConfiguration) -> Outcome:
        _refuse_marks(command.extra_config)
        async with self._change():
            verdict = judge_text(self.rollback_held, command.config or self.default_text, command.rm_id)
            of_file = not command.config and verdict.fate is not Fate.KEPT_OUT
            accepted = replace(command, config=verdict.text, of_file=of_file)
            outcome = await self._apply(accepted, Origin.UPDATE, verdict.note)
            self._take_note(Origin.UPDATE, command.config, verdict)
            self._last = command
        if verdict.note:
            warning = Problem(Severity.WARNING, 0, 0, "", verdict.note)
            return replace(outcome, warnings=(*outcome.warnings, warning))
        return outcome

    async def _rollback(self, number: int) -> Outcome:
        async with self._change():
            version = self.version(number)
            if not version.applied:
                raise VersionNotApplied(f"version {number} was refused: {version.reason}")
            manager, own, held = self._manager_id(), self._own_text, self.rollback_held
            caller().require_no_other_manager(manager)
            brought = {self.version(0).text, own, self.default_text, *self._brought_by.values()}
            # A rollback applies its text whatever the file says.
            command = replace(self._last, rm_id=manager, config=version.text, of_file=False)
            outcome = await self._apply(command, Origin.ROLLBACK)
            if version.text == own:
                self._end_rollback(f"version {number} is what the manager or the file brings: the rollback is not kept")
            elif outcome.changed:
                self.rollback_held = Rollback(
                    version=number,
                    text=version.text,
                    rm_id=manager,
                    at_ns=self._clock.now_ns(),
                    principal=principal(),
                    brought=frozenset(brought) | (held.brought if held is not None else frozenset()),
                )
                self._report_rollback(
                    f"rolled back to version {number} by {principal()}, until another text is brought"
                )
            return outcome

    async def _undo_rollback(self) -> Outcome:
        async with self._change():
            held = self.rollback_held
            manager = self._manager_id()
            if held is None:
                raise NoRollback("no rollback is in force")
            caller().require_no_other_manager(manager)
            note = f"the rollback to version {held.version} by {held.principal} was undone by {principal()}"
            command = replace(self._last, rm_id=manager, config=self._own_text, of_file=not self._brought)
            outcome = await self._apply(command, Origin.ROLLBACK, note)
            self.rollback_held = None
            self._report_rollback(note)
            return outcome

    @property
    def _own_text(self) -> str:
        """Returns the text that would be in force without a rollback."""
        return self._brought or self.default_text

    def _take_note(self, origin: Origin, brought: str, verdict: Verdict) -> None:
        """Record that the text *brought*, empty if the file is used, was handled as *verdict* says."""
        self._file_holds = not brought
        self._brought = brought
        self._brought_by[origin] = brought or self.default_text
        self.rollback_held = verdict.rollback
        if verdict.note:
            self._report_rollback(verdict.note)

    def _end_rollback(self, said: str) -> None:
        if self.rollback_held is not None:
            self.rollback_held = None
            self._report_rollback(said)

    def _report_rollback(self, note: str) -> None:
        self._logger.warning("configuration rollback", note=note)
        self._on_rollback(note)

    async def follow_file(self, text: str) -> None:
        """Apply the file's new *text*. Its content never raises an error: an invalid text changes only ``problem``.

        Raises :class:`ServiceError` if the core takes nothing for now.
        """
        async with self._change():
            try:
                if not text.strip():
                    raise EmptyFile("the file is empty")
                if self._runner.rm_id and self._file_holds:
                    await self._follow_file(text)
                elif text != self.default_text:
                    await self._read(text)
                    self._logger.info("configuration file read; it applies to managers that send no configuration")
            except (ConfigError, CommandRefused, EmptyFile, EngineFault) as error:
                self.report_problem(str(error))
                return
            self.default_text = text
            self.report_problem("")

    async def _follow_file(self, text: str) -> None:
        verdict = judge_text(self.rollback_held, text, self._runner.rm_id)
        if verdict.fate is not Fate.KEPT_OUT:
            command = replace(self._last, rm_id=self._runner.rm_id, config=text, of_file=True)
            await self._apply(command, Origin.FILE, verdict.note, who=THE_FILE)
        self.rollback_held = verdict.rollback
        if verdict.note:
            self._report_rollback(verdict.note)

    def report_problem(self, problem: str) -> None:
        """Note that the file cannot be used because of *problem*; empty: it can be used."""
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            self._logger.error("configuration file not applied, the one in force stays", problem=problem)
        else:
            self._logger.info("configuration file is good again")
        self._on_problem(problem)

    async def preview(self, text: str) -> bytes:
        """Returns what *text* would change, and its warnings, as a ``PreviewConfigurationResponse``. Changes nothing.

        Raises ConfigError, or :class:`TooMany`.
        """
        self._manager_id()
        if len(self._previews) >= MOST_PREVIEWS:
            raise TooMany("one preview is being worked out and another one waits; try again later")
        # The task goes on when its caller is gone, so it counts until it ends.
        task = asyncio.create_task(self._preview(text or self.default_text))
        self._previews.add(task)
        task.add_done_callback(self._previews.discard)
        return await asyncio.shield(task)

    async def _preview(self, text: str) -> bytes:
        async with self._one_previews:
            large = len(text) > SMALL
            configuration = None if large else await asyncio.to_thread(self._preview_reader.load, text)
            watched: Untried = {}
            while True:
                in_force, preview = await self._take_moment(watched)
                if configuration is None:
                    found = await self.judge.process.ask(request_messages(in_force, text, preview))
                else:
                    found = await asyncio.to_thread(try_on, preview, configuration)
                if isinstance(found, bytes):
                    return found
                watched = found  # Without the tasks of these queues nobody can tell who would have to leave.

    async def _take_moment(self, watched: Untried) -> tuple[str, ConfigurationPreview]:
        """Returns the partitions at one moment, with the tasks of the queues *watched*, and the text in force then."""
        while True:
            self._manager_id()
            await self._runner.questions.wait_settled()
            preview = self._runner.reader.configuration_preview(watched)
            version = self.version(0)
            if preview.configuration is not None and preview.configuration.checksum == version.checksum:
                return version.text, preview
            await asyncio.sleep(MOMENT_S)  # The engine has applied a text that is not in the history yet.

    async def close(self) -> None:
        """Refuse further texts, and stop working on those that are under way."""
        for task in self._previews:
            task.cancel()
        await asyncio.gather(*self._previews, return_exceptions=True)

    async def judge_text(self, text: str) -> Judgement:
        """Returns the judgement of *text*, or of the default for an empty one. Raises ConfigError, or
        :class:`TooMany`."""
        return await self.judge.judge_text(text or self.default_text)

    def version(self, number: int) -> Version:
        """Returns version *number*, 0 for the one in force. Raises :class:`NotFound`."""
        wanted = number or self.in_force
        version = self.history.get(wanted) if wanted else None
        if version is None:
            raise NotFound(f"no version {number} is kept" if number else "no configuration is in force")
        return version

    @property
    def in_force(self) -> int:
        """The number of the version in force; 0 while no manager is registered."""
        return self.history.in_force if self._runner.rm_id else 0

    async def _to_the_end(self, change: Coroutine[None, None, Outcome]) -> Outcome:
        """Finishes *change* even if the caller goes away, because a configuration must not be in force without a
        record."""
        task = asyncio.create_task(change)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    def _manager_id(self) -> str:
        if not self._runner.rm_id:
            raise NothingRegistered("no resource manager is registered, so no configuration is in force")
        return self._runner.rm_id

    async def _apply(
        self, command: RegisterManager | UpdateConfiguration, origin: Origin, note: str = "", who: str = ""
    ) -> Outcome:
        """Parse the text, apply it to the engine, and record the result.

        *note* says what happens to a rollback. *who* is the principal who brings the text; empty: the caller.
        """
        read: Configuration | None = None
        who = who or principal()
        try:
            if self._serves_manager(command):
                read = await self._read(command.config)
        except ConfigError as error:
            self._refuse_text(command, origin, str(error), error.problems, who=who)
            if isinstance(command, UpdateConfiguration) or await self._works_elsewhere(command.config):
                raise
            # The engine has to handle it all the same: a registration that fails leaves no manager registered.
        try:
            change = await self._runner.call(command, read)
        except CommandRefused as error:
            if read is not None:
                self._refuse_text(command, origin, str(error), read.warnings, read.checksum, who=who)
            raise
        warnings = read.warnings if read is not None else ()
        if change.changed or (isinstance(command, RegisterManager) and (note or not self._is_in_force(command))):
            version = self.history.add(
                at_ns=self._clock.now_ns(),
                origin=origin,
                rm_id=command.rm_id,
                text=command.config,
                checksum=change.checksum,
                problems=warnings,
                principal=who,
                note=note,
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
                by=who,
            )
        for warning in warnings[:MOST_LOGGED] if change.changed else ():
            self._logger.warning("configuration", problem=str(warning))
        return Outcome(change.changed, change.checksum, self.history.in_force, warnings)

    def _is_in_force(self, command: RegisterManager) -> bool:
        """Tells whether *command*, of a manager that registers again, brings the text that was in force last."""
        last = self.history.get(0)
        return last is not None and (last.text, last.rm_id) == (command.config, command.rm_id)

    async def _read(self, text: str) -> Configuration:
        """Returns the configuration in *text*, equal parts shared with the one in force. Raises ConfigError."""
        in_force = self._runner.configuration

        def read() -> Configuration | tuple[Problem, ...]:
            with self._one_reads:
                try:
                    return share_equal_parts(self._reader.load(text), in_force)
                except ConfigError as error:
                    # The error itself would keep everything that was parsed for as long as the caller waits.
                    return error.problems

        with self._garbage.pause_while_building():
            found = await asyncio.to_thread(read)
        if isinstance(found, Configuration):
            return found
        raise ConfigError(found)

    async def _works_elsewhere(self, text: str) -> bool:
        """Tells whether the engine, which does not know the resolvers of this machine, would accept the refused
        *text*."""
        try:
            await asyncio.to_thread(load, text)
        except ConfigError:
            return False
        return True

    def _serves_manager(self, command: RegisterManager | UpdateConfiguration) -> bool:
        """Tells whether *command* comes from a manager that this core serves; others are refused before their text is
        read."""
        if isinstance(command, RegisterManager) and not self._runner.rm_id:
            return bool(command.rm_id)
        return bool(command.rm_id) and command.rm_id == self._runner.rm_id

    def _refuse_text(
        self,
        command: RegisterManager | UpdateConfiguration,
        origin: Origin,
        reason: str,
        problems: tuple[Problem, ...],
        checksum: str = "",
        *,
        who: str,
    ) -> None:
        self._logger.warning("configuration refused", origin=str(origin), rm_id=command.rm_id, problem=reason, by=who)
        if self.history.refused_last(command.config, reason):
            return  # A repeated attempt must not push versions out of the history that are worth going back to.
        version = self.history.add(
            at_ns=self._clock.now_ns(),
            origin=origin,
            rm_id=command.rm_id,
            text=command.config,
            checksum=checksum,
            reason=reason,
            problems=problems,
            principal=who,
        )
        self._on_version(version)


def _refuse_marks(extra_config: Iterable[tuple[str, str]]) -> None:
    """Raises :class:`InvalidRequest` for a setting whose value is the mark that is shown instead of a secret."""
    marked = [name for name, value in extra_config if HIDDEN in value]
    if marked:
        setting = f"extra setting {show_name(marked[0])}"
        raise InvalidRequest(f"{setting} has {HIDDEN}, which is shown instead of a secret: send the secret itself")
