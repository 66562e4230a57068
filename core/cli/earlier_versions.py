"""Finds configurations by the names that ``kornel config history`` gives them: of this run of the core and earlier
ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

import typer

from kornel.core.cli.options import EXIT_BAD_INPUT
from kornel.core.cli.terminal import print_error
from kornel.core.client.configuration import ConfigurationClient
from kornel.core.client.failures import CoreUnreachable
from kornel.core.client.history import HistoryClient
from kornel.v1 import configuration_pb2 as pb
from kornel.v1 import history_pb2

RUN_DIGITS: Final = 8
"""The last digits of the number of a run, by which people tell runs apart."""
MOST_READ: Final = 1_000
"""Stored versions that are looked through."""


def list_earlier_versions(
    address: str, timeout_s: float, most: int, manager: str = "", *, everything: bool
) -> list[tuple[str, pb.ConfigurationVersion]]:
    """Returns the versions of earlier runs with their names, newest first; none, where no history is kept.

    *manager*: of that one alone. *everything*: also those that said the same as the version before them, as whenever a
    core starts again.
    """
    try:
        with HistoryClient(address, timeout_s) as core:
            status = core.status()
            if not status.enabled:
                return []
            stored = core.configurations(history_pb2.ListConfigurationsRequest(), most or MOST_READ)
    except CoreUnreachable:
        return []  # The history may be out of order; what the core itself remembers can be shown all the same.
    stored = [each for each in stored if each.id.run != status.run and manager in ("", each.version.rm_id)]
    kept = stored if everything else list(_leave_out_repeats(stored))
    return [(f"{_name_run(each.id.run)}/{each.version.number}", each.version) for each in kept]


def find_version(address: str, timeout_s: float, name: str, manager: str = "") -> pb.GetConfigurationResponse:
    """Returns the version called *name*: a number of this run, 0 for the one in force, or RUN/NUMBER. Exits for a name
    that is neither. Raises ``CoreUnreachable``, also for a version that is not known."""
    run, slash, number = name.rpartition("/")
    if not number.isascii() or not number.isdecimal() or len(number) > 18 or (slash and not run):
        print_error(f"{name!r} is no version: a number such as 3, or RUN/NUMBER as `kornel config history` shows it")
        raise typer.Exit(EXIT_BAD_INPUT)
    if not slash:
        with ConfigurationClient(address, timeout_s, manager) as core:
            return core.get(int(number))
    with HistoryClient(address, timeout_s) as core:
        request = history_pb2.ListConfigurationsRequest(with_config=True)
        for each in core.configurations(request, MOST_READ):
            named = _name_run(each.id.run) == run.lower() and each.version.number == int(number)
            if named and manager in ("", each.version.rm_id):
                return pb.GetConfigurationResponse(version=each.version, config=each.config, has_hidden=each.has_hidden)
    raise CoreUnreachable(f"no version {name} is stored", unknown=True)


def _leave_out_repeats(
    stored: Sequence[history_pb2.ConfigurationRecord],
) -> Iterator[history_pb2.ConfigurationRecord]:
    """Yields the records that are not the same as the one that came before, which stands behind them."""
    for each, before in zip_longest(stored, stored[1:]):
        said = (each.version.checksum, each.version.applied, each.version.reason)
        if before is None or said != (before.version.checksum, before.version.applied, before.version.reason):
            yield each


def _name_run(run: int) -> str:
    return f"{run:016x}"[-RUN_DIGITS:]
