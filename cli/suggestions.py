"""Suggests similar names if a core does not know a name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Final

import typer

from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.client.reading import Reader
from kornel.cli.options import EXIT_FAILED
from kornel.cli.terminal import print_error
from kornel.v1 import read_pb2 as pb

MOST_NAMES: Final = 5_000
"""The most names that are compared; if there are more, the first ones."""
MOST_SUGGESTED: Final = 3


def report_unknown(error: CoreUnreachable, name: str, names: Callable[[], Iterable[str]]) -> typer.Exit:
    """Prints *error* with the nearest of *names* if it is about an unknown *name*; returns the exit to be raised."""
    print_error(f"{error}{suggest_names(name, names()) if error.unknown else ''}")
    return typer.Exit(EXIT_FAILED)


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Returns a question that offers the nearest of *names*, to be added to an error message; empty if none is near."""
    known = {each.lower(): each for each in names}
    wanted = name.lower()
    near = difflib.get_close_matches(wanted, known, MOST_SUGGESTED, 0.7)
    # People leave out the beginning or end of a name more often than they mistype it.
    near += [each for each in known if wanted in each and each not in near][: MOST_SUGGESTED - len(near)]
    return f"; did you mean {' or '.join(known[each] for each in near)}?" if near and wanted else ""


def suggest_queues(address: str, partition: str, timeout_s: float) -> list[str]:
    """Returns the paths of the queues; none if the core does not answer."""
    return _names_of(address, timeout_s, lambda core: [each.path for each in core.queues(partition).queues])


def suggest_nodes(address: str, partition: str, timeout_s: float) -> list[str]:
    """Returns the IDs of the first nodes; none if the core does not answer."""
    wanted = pb.ListNodesRequest(partition=partition)
    return _names_of(address, timeout_s, lambda core: [each.node_id for each in core.nodes(wanted, MOST_NAMES).nodes])


def suggest_applications(address: str, partition: str, timeout_s: float) -> list[str]:
    """Returns the IDs of the first live applications; none if the core does not answer."""
    wanted = pb.ListApplicationsRequest(partition=partition)

    def list_names(core: Reader) -> list[str]:
        return [each.application_id for each in core.applications(wanted, MOST_NAMES).applications]

    return _names_of(address, timeout_s, list_names)


def _names_of(address: str, timeout_s: float, names: Callable[[Reader], list[str]]) -> list[str]:
    try:
        with Reader(address, timeout_s) as core:
            return names(core)[:MOST_NAMES]
    except CoreUnreachable:
        return []
