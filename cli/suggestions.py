"""Suggests similar names if a core does not know a name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer
from google.protobuf.message import Message

from kornel.cli.asking import PartitionCore
from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.options import report_failure
from kornel.v1 import read_pb2 as pb
from kornel.v1.read_pb2_grpc import ReadServiceStub

MOST_NAMES: Final = 5_000
"""The most names that are compared; if there are more, the first ones."""
MOST_SUGGESTED: Final = 3


@contextmanager
def suggesting_names(name: str, names: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Exits with the nearest of *names* when a call within the block fails because the core does not know *name*."""
    try:
        yield
    except CoreUnreachable as error:
        if not error.unknown:
            raise
        raise report_unknown(error, name, names()) from error


def report_unknown(error: CoreUnreachable, name: str, names: Iterable[str]) -> typer.Exit:
    """Prints *error*, which is about an unknown *name*, with the nearest of *names*; returns the exit to be raised."""
    return report_failure(f"{error}{suggest_names(name, names)}")


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Returns a question that offers the nearest of *names*, to be added to an error message; empty if none is near."""
    known = {each.lower(): each for each in names}
    wanted = name.lower()
    near = difflib.get_close_matches(wanted, known, MOST_SUGGESTED, 0.7)
    # People leave out the beginning or end of a name more often than they mistype it.
    near += [each for each in known if wanted in each and each not in near][: MOST_SUGGESTED - len(near)]
    return f"; did you mean {' or '.join(known[each] for each in near)}?" if near and wanted else ""


def suggest_queues(core: PartitionCore) -> list[str]:
    """Returns the paths of the queues; none if the core does not answer."""
    wanted = pb.ListQueuesRequest(partition=core.partition)
    return _names_of(core, ReadServiceStub(core.channel).ListQueues, wanted, "queues", "path")


def suggest_nodes(core: PartitionCore) -> list[str]:
    """Returns the IDs of the first nodes; none if the core does not answer."""
    wanted = pb.ListNodesRequest(partition=core.partition)
    return _names_of(core, ReadServiceStub(core.channel).ListNodes, wanted, "nodes", "node_id")


def suggest_applications(core: PartitionCore) -> list[str]:
    """Returns the IDs of the first live applications; none if the core does not answer."""
    wanted = pb.ListApplicationsRequest(partition=core.partition)
    return _names_of(core, ReadServiceStub(core.channel).ListApplications, wanted, "applications", "application_id")


def _names_of(core: PartitionCore, method: Callable[..., Any], request: Message, listed: str, name: str) -> list[str]:
    try:
        return [getattr(each, name) for each in getattr(core.read_list(method, request, listed, MOST_NAMES), listed)]
    except CoreUnreachable:
        return []
