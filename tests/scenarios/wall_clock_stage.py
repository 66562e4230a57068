"""A stage whose shim speaks ``si.v1`` and dates what it says by a wall clock that somebody sets before each request."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import Final

from kornel.core.domain.allocation_ids import allocation_id
from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    Command,
    NodeSpec,
    ReleaseSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.names import full_partition_name
from kornel.core.domain.resources import Resources
from kornel.core.model.allocations import identity_of
from kornel.core.service.wire.scheduler_wire import PARTITION_ATTRIBUTE, Decoder
from kornel.si.v1 import si_pb2 as si
from tests.scenarios.language import RM
from tests.scenarios.stage import Stage

HOUR_S: Final = 3_600
APPLICATION_TIME: Final = "yunikorn.apache.org/creationTime"
ALLOCATION_TIME: Final = "creationTime"
DEFAULT_PARTITION: Final = full_partition_name(RM, "")

Request = si.ApplicationRequest | si.AllocationRequest | si.NodeRequest


class WallClockStage(Stage):
    """A :class:`Stage` that plays the same scenarios with the wall clock one or two hours ahead, in turns.

    So it is set ahead and back by an hour all the time, and still shows no time before 1970, which no tag can state.
    """

    def __init__(self) -> None:
        super().__init__()
        self._settings = cycle((HOUR_S, 2 * HOUR_S))
        self._ahead_s = 0
        self._decoder = Decoder(lambda: self._ahead_s)

    def _apply(self, command: Command) -> list[str]:
        self._ahead_s = next(self._settings)
        return [answer for received in self._send(command) for answer in super(WallClockStage, self)._apply(received)]

    def _send(self, command: Command) -> Iterable[Command]:
        """Returns what the core reads where a shim means *command*."""
        match self._write_request(command):
            case si.ApplicationRequest() as request:
                return self._decoder.application_commands(request)
            case si.AllocationRequest() as request:
                return self._decoder.allocation_commands(request)
            case si.NodeRequest() as request:
                return self._decoder.node_commands(request)
        return [command]

    def _write_request(self, command: Command) -> Request | None:
        """Returns the request by which a shim says *command*; none if no single request does."""
        match command:
            case UpdateApplications(rm_id, add, remove):
                return si.ApplicationRequest(
                    rmID=rm_id,
                    new=map(self._application_message, add),
                    remove=[
                        si.RemoveApplicationRequest(applicationID=ref.application_id, partitionName=ref.partition)
                        for ref in remove
                    ],
                )
            case UpdateAllocations(rm_id, allocations, ask_releases, releases) if not _mixes_generations(allocations):
                return si.AllocationRequest(
                    rmID=rm_id,
                    allocations=[self._allocation_message(spec) for spec in allocations if not spec.legacy],
                    asks=[self._ask_message(spec) for spec in allocations if spec.legacy],
                    releases=si.AllocationReleasesRequest(
                        allocationAsksToRelease=map(_ask_release_message, ask_releases),
                        allocationsToRelease=map(_release_message, releases),
                    ),
                )
            case UpdateNodes(rm_id, nodes):
                return si.NodeRequest(rmID=rm_id, nodes=map(self._node_message, nodes))
        return None

    def _node_message(self, node: NodeSpec) -> si.NodeInfo:
        partition = {} if node.partition == DEFAULT_PARTITION else {PARTITION_ATTRIBUTE: node.partition}
        return si.NodeInfo(
            nodeID=node.node_id,
            action=si.NodeInfo.ActionFromRM.ValueType(node.action),
            attributes=dict(node.attributes) | partition,
            schedulableResource=_amounts(node.capacity),
            occupiedResource=_amounts(node.occupied),
            existingAllocations=map(self._allocation_message, node.existing),
        )

    def _application_message(self, spec: ApplicationSpec) -> si.AddApplicationRequest:
        tags = dict(spec.tags)
        if spec.created_s is not None:
            tags[APPLICATION_TIME] = str(spec.created_s + self._ahead_s)
        return si.AddApplicationRequest(
            applicationID=spec.application_id,
            queueName=spec.queue,
            partitionName=spec.partition,
            ugi=si.UserGroupInformation(user=spec.user, groups=spec.groups),
            tags=tags,
            executionTimeoutMilliSeconds=spec.placeholder_timeout_ms,
            placeholderAsk=_amounts(spec.placeholder_ask),
            gangSchedulingStyle=spec.gang_style,
        )

    def _allocation_message(self, spec: AllocationSpec) -> si.Allocation:
        return si.Allocation(
            allocationKey=spec.key,
            applicationID=spec.application_id,
            partitionName=spec.partition,
            resourcePerAlloc=_amounts(spec.resources),
            priority=spec.priority,
            nodeID=spec.node_id,
            taskGroupName=spec.task_group,
            placeholder=spec.placeholder,
            originator=spec.originator,
            preemptionPolicy=_policy(spec),
            allocationTags=self._tags(spec),
            allocationID=allocation_id(spec.key, spec.instance) if spec.instance else "",
        )

    def _ask_message(self, spec: AllocationSpec) -> si.AllocationAsk:
        return si.AllocationAsk(
            allocationKey=spec.key,
            applicationID=spec.application_id,
            partitionName=spec.partition,
            resourceAsk=_amounts(spec.resources),
            priority=spec.priority,
            taskGroupName=spec.task_group,
            placeholder=spec.placeholder,
            Originator=spec.originator,
            preemptionPolicy=_policy(spec),
            tags=self._tags(spec),
            maxAllocations=spec.max_allocations,
        )

    def _tags(self, spec: AllocationSpec) -> dict[str, str]:
        tags = dict(spec.tags)
        if spec.required_node:
            tags["yunikorn.apache.org/requiredNode"] = spec.required_node
        if spec.foreign:
            tags["foreign"] = spec.foreign
        if spec.dependent:
            tags["kornel.dependsOnPlacements"] = "true"
        if spec.created_s is not None:
            tags[ALLOCATION_TIME] = self._date_sent_before(spec) or str(spec.created_s + self._ahead_s)
        return tags

    def _date_sent_before(self, spec: AllocationSpec) -> str:
        """Returns how the shim dated *spec* when it first sent it; empty if it never did. It says the same again."""
        state = self.engine.partition(spec.partition)
        if state is None:
            return ""
        if spec.foreign:
            node = state.foreign.get(spec.key)
            known = node.foreign_loads[spec.key].spec if node is not None else None
        else:
            request = state.requests.get(identity_of(spec.key, spec.instance))
            known = request.spec if request is not None else None
        if known is None or known.created_s != spec.created_s:
            return ""
        return dict(known.tags).get(ALLOCATION_TIME, "")


def _mixes_generations(specs: Iterable[AllocationSpec]) -> bool:
    """Tells whether *specs* go into two lists of one request, which keeps no order between the two."""
    return len({spec.legacy for spec in specs}) > 1


def _amounts(resources: Resources | None) -> si.Resource | None:
    if resources is None:
        return None
    return si.Resource(resources={name: si.Quantity(value=amount) for name, amount in resources.items()})


def _policy(spec: AllocationSpec) -> si.PreemptionPolicy:
    return si.PreemptionPolicy(allowPreemptSelf=spec.allow_preempt_self, allowPreemptOther=spec.allow_preempt_other)


def _ask_release_message(spec: ReleaseSpec) -> si.AllocationAskRelease:
    return si.AllocationAskRelease(
        partitionName=spec.partition,
        applicationID=spec.application_id,
        allocationKey=spec.key,
        terminationType=si.TerminationType.ValueType(spec.termination),
    )


def _release_message(spec: ReleaseSpec) -> si.AllocationRelease:
    return si.AllocationRelease(
        partitionName=spec.partition,
        applicationID=spec.application_id,
        allocationKey=spec.key,
        terminationType=si.TerminationType.ValueType(spec.termination),
        allocationID=spec.allocation_id,
    )
