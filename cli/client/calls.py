"""The calls that the command line makes to a running core."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from kornel.cli.client.channels import open_channel
from kornel.cli.client.connection import DEFAULT_TIMEOUT_S, DUMP_TIMEOUT_S
from kornel.cli.client.failures import describe_failure
from kornel.v1.manager_pb2 import UnregisterResourceManagerRequest
from kornel.v1.manager_pb2_grpc import ManagerServiceStub
from kornel.v1.status_pb2 import (
    ExplainAskRequest,
    ExplainAskResponse,
    ExplainQueueRequest,
    ExplainQueueResponse,
    ExplainUserRequest,
    ExplainUserResponse,
    GetStateDumpRequest,
    GetStatusRequest,
    GetStatusResponse,
)
from kornel.v1.status_pb2_grpc import StatusServiceStub


@contextmanager
def failing_in_words(address: str) -> Iterator[None]:
    """Raises :class:`CoreUnreachable` when a call to *address* within the block fails."""
    try:
        yield
    except grpc.RpcError as error:
        raise describe_failure(address, error) from error


@contextmanager
def open_call(address: str) -> Iterator[grpc.Channel]:
    """Yields a channel to *address*. A call on it that fails within the block raises :class:`CoreUnreachable`."""
    with open_channel(address) as channel, failing_in_words(address):
        yield channel


def check_health(address: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
    """Returns ``SERVING``, or the other status that the core reports. Raises :class:`CoreUnreachable`."""
    with open_call(address) as channel:
        answer = HealthStub(channel).Check(  # type: ignore[attr-defined]  # the type stubs leave it out
            health_pb2.HealthCheckRequest(), timeout=timeout_s
        )
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def fetch_status(
    address: str,
    partition: str = "",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    audit: bool = False,
    manager: str = "",
) -> GetStatusResponse:
    """Returns the state of the core, with its books checked if *audit* is set. Raises :class:`CoreUnreachable`."""
    with open_call(address) as channel:
        request = GetStatusRequest(partition=partition, audit=audit, rm_id=manager)
        return StatusServiceStub(channel).GetStatus(request, timeout=timeout_s)


def explain_queue(
    address: str, path: str, partition: str = "", timeout_s: float = DEFAULT_TIMEOUT_S
) -> ExplainQueueResponse:
    """Returns the bounds of the queue at *path*. Raises :class:`CoreUnreachable`, also for a queue that does not
    exist."""
    with open_call(address) as channel:
        request = ExplainQueueRequest(partition=partition, path=path)
        return StatusServiceStub(channel).ExplainQueue(request, timeout=timeout_s)


def fetch_dump(address: str, timeout_s: float = DUMP_TIMEOUT_S, manager: str = "") -> str:
    """Returns the full state of the core and its shim, a JSON object. Raises :class:`CoreUnreachable`."""
    with open_call(address) as channel:
        return StatusServiceStub(channel).GetStateDump(GetStateDumpRequest(rm_id=manager), timeout=timeout_s).json


def explain_ask(
    address: str, key: str, partition: str = "", timeout_s: float = DEFAULT_TIMEOUT_S
) -> ExplainAskResponse:
    """Returns the state of the ask *key*. Raises :class:`CoreUnreachable`, also for an unknown ask."""
    with open_call(address) as channel:
        request = ExplainAskRequest(partition=partition, allocation_key=key)
        return StatusServiceStub(channel).ExplainAsk(request, timeout=timeout_s)


def unregister(address: str, rm_id: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
    """Remove the resource manager *rm_id* from the core. Raises :class:`CoreUnreachable`."""
    with open_call(address) as channel:
        request = UnregisterResourceManagerRequest(rm_id=rm_id)
        ManagerServiceStub(channel).UnregisterResourceManager(request, timeout=timeout_s)


def explain_user(
    address: str, user: str, partition: str = "", timeout_s: float = DEFAULT_TIMEOUT_S
) -> ExplainUserResponse:
    """Returns the limits of *user*. Raises :class:`CoreUnreachable`, also for an unknown user."""
    with open_call(address) as channel:
        request = ExplainUserRequest(partition=partition, user=user)
        return StatusServiceStub(channel).ExplainUser(request, timeout=timeout_s)
