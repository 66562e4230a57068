"""Finds configurations of this and earlier runs of the core by the names that ``kornel config history`` gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from kornel.cli.asking import ManagerCore
from kornel.cli.client.failures import CoreUnreachable
from kornel.cli.options import refuse_input
from kornel.v1 import configuration_pb2 as pb
from kornel.v1 import history_pb2
from kornel.v1.configuration_pb2_grpc import ConfigurationServiceStub
from kornel.v1.history_pb2_grpc import HistoryServiceStub

RUN_DIGITS: Final = 8
"""The last digits of the number of a run, by which people tell runs apart."""
MOST_READ: Final = 1_000
"""The most stored versions that are searched."""


def list_earlier_versions(
    core: ManagerCore, most: int, *, everything: bool
) -> list[tuple[str, pb.ConfigurationVersion]]:
    """Returns the versions of earlier runs with their names, newest first; none if no history is kept.

    *everything*: also versions with the same text as the one before, which
    every start of a core adds.
    """
    try:
        service = HistoryServiceStub(core.channel)
        status = core.call(service.GetHistoryStatus, history_pb2.GetHistoryStatusRequest())
        if not status.enabled:
            return []
        stored = _read_stored(core, history_pb2.ListConfigurationsRequest(), most or MOST_READ)
    except CoreUnreachable:
        return []  # If the history does not work, the versions that the core itself keeps can still be shown.
    stored = [each for each in stored if each.id.run != status.run and core.manager in ("", each.version.rm_id)]
    kept = stored if everything else list(_leave_out_repeats(stored))
    return [(f"{_name_run(each.id.run)}/{each.version.number}", each.version) for each in kept]


def find_version(core: ManagerCore, name: str) -> pb.GetConfigurationResponse:
    """Returns the version called *name*: a number of this run, 0 for the one in force, or RUN/NUMBER. Exits if *name*
    is none of these. Raises ``CoreUnreachable``, also for an unknown version."""
    run, slash, number = name.rpartition("/")
    if not number.isascii() or not number.isdecimal() or len(number) > 18 or (slash and not run):
        raise refuse_input(
            f"{name!r} is not a version; give a number such as 3, or RUN/NUMBER of `kornel config history`"
        )
    if not slash:
        request = pb.GetConfigurationRequest(version=int(number), rm_id=core.manager)
        return core.call(ConfigurationServiceStub(core.channel).GetConfiguration, request)
    for each in _read_stored(core, history_pb2.ListConfigurationsRequest(with_config=True), MOST_READ):
        named = _name_run(each.id.run) == run.lower() and each.version.number == int(number)
        if named and core.manager in ("", each.version.rm_id):
            return pb.GetConfigurationResponse(version=each.version, config=each.config, has_hidden=each.has_hidden)
    raise CoreUnreachable(f"no version {name} is stored", unknown=True)


def _read_stored(
    core: ManagerCore, request: history_pb2.ListConfigurationsRequest, most: int
) -> Sequence[history_pb2.ConfigurationRecord]:
    method = HistoryServiceStub(core.channel).ListConfigurations
    return core.read_list(method, request, "configurations", most).configurations


def _leave_out_repeats(
    stored: Sequence[history_pb2.ConfigurationRecord],
) -> Iterator[history_pb2.ConfigurationRecord]:
    """Yields the records whose text differs from that of the version before them. *stored* has the newest first."""
    for each, before in zip_longest(stored, stored[1:]):
        said = (each.version.checksum, each.version.applied, each.version.reason)
        if before is None or said != (before.version.checksum, before.version.applied, before.version.reason):
            yield each


def _name_run(run: int) -> str:
    return f"{run:016x}"[-RUN_DIGITS:]
