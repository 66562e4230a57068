"""Reads the state of a whole core: the partitions of all its resource managers, each of which has a separate reader.

A partition is named by its full name, ``[rm]name``, or by its bare name while only one manager has such a partition. It
is shown in the same way, so that users of a core with one manager never see a full name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kornel.core.domain.manager import RegisteredManager
from kornel.core.domain.names import bare_partition_name
from kornel.core.telling.partitions.partition_status import FinalCounts, final_counts
from kornel.core.telling.reader import PartitionReader, Reader


class AmbiguousPartition(KeyError):
    """Several managers have a partition of that bare name. ``names``: the full names."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.names = tuple(names)


class CoreReader:
    """Reads the state of all managers. *readers*: one for each manager, including places where none is registered."""

    def __init__(self, readers: Callable[[], Sequence[Reader]]) -> None:
        self._readers = readers

    def get(self, partition: str) -> PartitionReader | None:
        """Reads one partition as it is now; ``None``: there is no such partition. Raises :class:`AmbiguousPartition`
        for a bare name that several managers use."""
        found = self._find_all(partition)
        if len(found) > 1:
            raise AmbiguousPartition([views.name for views in found])
        return found[0] if found else None

    def get_first(self, partition: str) -> PartitionReader | None:
        """Reads one partition as :meth:`get` does, but a bare name that several managers use means the partition of the
        first one."""
        found = self._find_all(partition)
        return found[0] if found else None

    def _find_all(self, partition: str) -> list[PartitionReader]:
        found = [reader.get(partition) for reader in self._readers() if reader.rm_id]
        return [views for views in found if views is not None]

    def partitions(self, rm_id: str = "") -> list[PartitionReader]:
        """Reads each partition as it is now: manager by manager, and by name. With *rm_id*, only those of that
        manager."""
        return [
            views for reader in self._readers() if not rm_id or reader.rm_id == rm_id for views in reader.partitions()
        ]

    @property
    def managers(self) -> list[RegisteredManager]:
        """The registered resource managers as they described themselves, the first one first."""
        return [reader.manager for reader in self._readers() if reader.manager is not None]

    @property
    def rm_ids(self) -> list[str]:
        """The registered resource managers, the first one first."""
        return [reader.rm_id for reader in self._readers() if reader.rm_id]

    def full_name(self, partition: str) -> str:
        """Returns the full name of the partition that *partition* names, or would name. Raises
        :class:`AmbiguousPartition`."""
        found = self.get(partition)
        if found is not None or partition.startswith("["):
            return found.name if found is not None else partition
        return f"[{next(iter(self.rm_ids), '')}]{partition or 'default'}"

    def shown_name(self, full: str) -> str:
        """Returns the shortest unambiguous name of the partition *full*."""
        bare = bare_partition_name(full)
        return bare if len(self._find_all(bare)) < 2 else full

    @property
    def size(self) -> int:
        """The number of requests, nodes and applications."""
        return sum(views.size for views in self.partitions())

    def final_counts(self, most_audited: int) -> FinalCounts:
        """Counts what the whole core has done. The books are audited if they have at most *most_audited* records."""
        return final_counts([state for reader in self._readers() for state in reader.states()], most_audited)

    def may_administer(self, partition: str, path: str, user: str, groups: Sequence[str]) -> bool:
        """Tells whether *user* administers the queue at *path*; nobody administers one that does not exist."""
        reader = self.get(partition)
        return reader is not None and reader.may_administer(path, user, groups)

    def may_administer_first(self, partition: str, path: str, user: str, groups: Sequence[str]) -> bool:
        """Tells whether *user* administers the queue at *path* in the partition that :meth:`get_first` reads."""
        reader = self.get_first(partition)
        return reader is not None and reader.may_administer(path, user, groups)

    def resolver_of(self, partition: str) -> str:
        """Returns the name of the resolver that is asked for the groups of users; empty: none, or there is no such
        partition."""
        reader = self.get(partition)
        return reader.resolver if reader is not None else ""
