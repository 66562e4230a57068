"""Our engine with one rule broken: what a core might get wrong, to see whether the kit says so."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any

from kornel.core.domain.commands import (
    AnswerCallbacks,
    Command,
    NodeAction,
    RegisterManager,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.devices import DEVICES_ATTRIBUTE, GIVEN_TAG, DeviceRequest
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    Effect,
    NodeAccepted,
    NodeRejected,
    Released,
)
from kornel.core.engine.engine import CycleResult, Engine

WELL_FORMED = "submitacl"


class BrokenEngine(Engine):
    """The engine, with a hand on what goes in and what comes out."""

    def heard(self, command: Command) -> Command:
        """What the engine is given instead of *command*."""
        return command

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        """What is told instead of *effects* of *command*, or of scheduling."""
        return effects

    def apply(self, command: Command, now_ns: int) -> list[Effect]:
        command = self.heard(command)
        return self.said(super().apply(command, now_ns), command)

    def update_in_steps(self, command: UpdateConfiguration, now_ns: int) -> Generator[None, None, list[Effect]]:
        heard = self.heard(command)
        assert isinstance(heard, UpdateConfiguration)
        return self.said((yield from super().update_in_steps(heard, now_ns)), heard)

    def cycle(self, now_ns: int, budget: int) -> CycleResult:
        done = super().cycle(now_ns, budget)
        return CycleResult(self.said(done.effects, None), done.more)

    def preempt(self, now_ns: int) -> list[Effect]:
        return self.said(super().preempt(now_ns), None)


class DropsEcho(BrokenEngine):
    """Does not confirm recovered allocations."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        if not isinstance(command, UpdateAllocations):
            return effects
        return [effect for effect in effects if not isinstance(effect, Allocated)]


class EchoesDuplicates(BrokenEngine):
    """Confirms an allocation whenever it is reported."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        if not isinstance(command, UpdateAllocations):
            return effects
        told = {effect.spec.key for effect in effects if isinstance(effect, Allocated)}
        refused = {effect.key for effect in effects if isinstance(effect, AllocationRejected)}
        return effects + [
            Allocated(spec, spec.node_id, spec.resources)
            for spec in command.allocations
            if spec.node_id and spec.resources is not None and not spec.foreign and spec.key not in told | refused
        ]


class CompletesAtOnce(BrokenEngine):
    """Reports Completed where it should say Completing."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        return [
            effect._replace(state="Completed")
            if isinstance(effect, ApplicationUpdated) and effect.state == "Completing"
            else effect
            for effect in effects
        ]


class IgnoresPartitions(BrokenEngine):
    """Takes every entry for partition ``gpu`` for one for the default partition."""

    def heard(self, command: Command) -> Command:
        match command:
            case UpdateNodes():
                return replace(command, nodes=_moved(command.nodes))
            case UpdateApplications():
                return replace(command, add=_moved(command.add), remove=_moved(command.remove))
            case UpdateAllocations():
                return replace(command, allocations=_moved(command.allocations), releases=_moved(command.releases))
            case _:
                return command


def _moved(specs: Iterable[Any]) -> tuple[Any, ...]:
    """*specs* of any kind in the default partition instead of gpu."""
    return tuple(each._replace(partition=each.partition.replace("gpu", "default")) for each in specs)


class AnswersUpdates(BrokenEngine):
    """Accepts node updates in so many words."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        if not isinstance(command, UpdateNodes):
            return effects
        updates = (node for node in command.nodes if node.action == NodeAction.UPDATE)
        return [*effects, *(NodeAccepted(node.node_id) for node in updates)]


class AnswersReleasesTwice(BrokenEngine):
    """Confirms a release that changed nothing."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        if not isinstance(command, UpdateAllocations):
            return effects
        told = {effect.key for effect in effects if isinstance(effect, Released)}
        stopped = (
            spec
            for spec in command.releases
            if spec.termination == TerminationType.STOPPED_BY_RM and spec.application_id and spec.key not in told
        )
        return effects + [Released(s.partition, s.application_id, s.key, s.termination, "") for s in stopped]


class WithoutDefaultPolicy(BrokenEngine):
    """An ask without policy may not be preempted."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        return [
            effect._replace(spec=effect.spec._replace(allow_preempt_self=False))
            if isinstance(effect, Allocated)
            else effect
            for effect in effects
        ]


class TimeInMilliseconds(BrokenEngine):
    """Stamps state changes with the wrong unit."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        return [
            effect._replace(at_ns=effect.at_ns // 1_000_000) if isinstance(effect, ApplicationUpdated) else effect
            for effect in effects
        ]


class NamesNoDevices(BrokenEngine):
    """Places an ask with devices, and does not say which ones it has."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        return [
            effect._replace(tags=tuple(tag for tag in effect.tags if tag[0] != GIVEN_TAG))
            if isinstance(effect, Allocated)
            else effect
            for effect in effects
        ]


class ForgetsWants(BrokenEngine):
    """Says which devices an ask has, and not what it wanted."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        return [
            effect._replace(tags=tuple(tag for tag in effect.tags if tag[0] == GIVEN_TAG))
            if isinstance(effect, Allocated)
            else effect
            for effect in effects
        ]


class SharesNothing(BrokenEngine):
    """Takes every part of a device for a whole one."""

    def heard(self, command: Command) -> Command:
        return _changed_wants(command, lambda wants: wants._replace(number=wants.number or 1, share=0, memory=0))


class IgnoresLinks(BrokenEngine):
    """Takes linked devices for any devices."""

    def heard(self, command: Command) -> Command:
        return _changed_wants(command, lambda wants: wants._replace(linked=False))


class BelievesNonsense(BrokenEngine):
    """Overlooks that tags make no sense, and takes them for a wish for one device."""

    def heard(self, command: Command) -> Command:
        return _changed_wants(command, lambda wants: DeviceRequest(number=1) if wants.flaw else wants)


class ForgetsWhatRuns(BrokenEngine):
    """Chooses devices for an allocation that runs with others already."""

    def heard(self, command: Command) -> Command:
        return _changed_wants(command, lambda wants: wants._replace(given=()))


class KeepsOldDevices(BrokenEngine):
    """Reads the devices of a node once."""

    def heard(self, command: Command) -> Command:
        if not isinstance(command, UpdateNodes):
            return command
        nodes = (
            node._replace(attributes=tuple(pair for pair in node.attributes if pair[0] != DEVICES_ATTRIBUTE))
            if node.action == NodeAction.UPDATE
            else node
            for node in command.nodes
        )
        return replace(command, nodes=tuple(nodes))


def _changed_wants(command: Command, change: Callable[[DeviceRequest], DeviceRequest]) -> Command:
    """*command* with changed wishes for devices."""
    if not isinstance(command, UpdateAllocations):
        return command
    allocations = (
        spec if spec.devices is None else spec._replace(devices=change(spec.devices)) for spec in command.allocations
    )
    return replace(command, allocations=tuple(allocations))


class StopsVictims(BrokenEngine):
    """Asks for victims with STOPPED_BY_RM."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        return [
            effect._replace(termination=TerminationType.STOPPED_BY_RM)
            if isinstance(effect, Released) and effect.termination == TerminationType.PREEMPTED_BY_SCHEDULER
            else effect
            for effect in effects
        ]


class AcceptsAgain(BrokenEngine):
    """Accepts an application that exists."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        return [
            ApplicationAccepted(effect.application_id)
            if isinstance(effect, ApplicationRejected) and effect.reason.startswith("application-exists")
            else effect
            for effect in effects
        ]


class ForgetsPriority(BrokenEngine):
    """Takes all asks for equally important."""

    def heard(self, command: Command) -> Command:
        if not isinstance(command, UpdateAllocations):
            return command
        return replace(command, allocations=tuple(spec._replace(priority=0) for spec in command.allocations))


class AsksAtOnce(BrokenEngine):
    """Takes no ask for one that depends on other placements."""

    def heard(self, command: Command) -> Command:
        if isinstance(command, UpdateAllocations):
            return replace(command, allocations=tuple(s._replace(dependent=False) for s in command.allocations))
        if isinstance(command, AnswerCallbacks):
            predicates = tuple(answer._replace(dependent=False) for answer in command.predicates)
            return replace(command, predicates=predicates, acknowledged=())
        return command


class RefusesInItsOwnWords(BrokenEngine):
    """Breaks nothing but the text of reasons."""

    def said(self, effects: list[Effect], command: Command | None) -> list[Effect]:
        return [
            effect._replace(reason="this cannot be done")
            if isinstance(effect, NodeRejected | ApplicationRejected | AllocationRejected)
            else effect
            for effect in effects
        ]


class KeepsOldQueues(BrokenEngine):
    """Says yes to a new configuration and goes on with the old one."""

    def __init__(self) -> None:
        super().__init__()
        self._config = ""

    def heard(self, command: Command) -> Command:
        if isinstance(command, RegisterManager):
            self._config = command.config
        if isinstance(command, UpdateConfiguration) and WELL_FORMED in command.config:
            return replace(command, config=self._config)
        return command
