"""Makes answers to the shim about one request, and the tags with which the shim reports its devices."""

from __future__ import annotations

from kornel.core.domain.effects import Released
from kornel.core.model.allocations import Allocation
from kornel.core.state.partition_state import PartitionState


def answer_release(state: PartitionState, allocation: Allocation, termination: int, message: str) -> Released:
    """Returns the answer that names *allocation* as gone, or as one that is to go."""
    spec = allocation.spec
    return Released(state.name, spec.application_id, spec.key, termination, message, spec.instance)


def device_tags(allocation: Allocation) -> tuple[tuple[str, str], ...]:
    """Returns the tags with which the shim is to report *allocation*: they name its devices and its request. There are
    none if it holds no devices."""
    request = allocation.shape.devices
    return request._replace(given=allocation.devices).tags if request is not None and allocation.devices else ()
