"""Warns of texts that are allowed but probably not meant: amounts in other units, other names of well-known resource
types."""

from __future__ import annotations

from typing import Final

from kornel.core.config.checks.resource_rules import amounts_of
from kornel.core.config.keys.declared import Amounts, DeclaredQueue
from kornel.core.config.text.yaml_reader import shorten_text

LEAST_MEMORY: Final = 2**24
"""The amount of memory in bytes below which another unit was probably meant, because no task runs with so little."""

_MEMORY: Final = frozenset(
    ("mem ram memory-mb memory_mb memorymb memory-gb memory_gb memory-bytes mem-mb memory-mib").split()  # noqa: SIM905
)
_CORES: Final = frozenset(
    {"cpu", "cpus", "core", "cores", "vcores", "vcpu", "vcpus", "v-cores", "milli-cpu", "millicpu", "milli-vcore"}
)


def warn_of_likely_mistakes(root: DeclaredQueue) -> None:
    """Warns of amounts at *root* and below that were probably meant otherwise."""
    warned: set[str] = set()
    for queue in root.walk_queues():
        for amounts in amounts_of(queue):
            for name in amounts.values:
                _warn_of_name(queue, amounts, name, warned)
            _warn_of_memory(queue, amounts)


def _warn_of_name(queue: DeclaredQueue, amounts: Amounts, name: str, warned: set[str]) -> None:
    meant = _well_known_type(name)
    if meant and name not in warned:
        warned.add(name)
        amounts.fields[name].warning(
            f"queue {queue.path}: resource type {shorten_text(name)} is not the well-known type {meant!r}: it bounds"
            " only asks and nodes that use this very name",
            meant,
        )


def _well_known_type(name: str) -> str:
    """Returns the well-known type that *name* is probably meant to be; empty: none, or it is that type."""
    lower = name.lower()
    if name in ("memory", "vcore"):
        return ""
    if lower == "memory" or lower in _MEMORY:
        return "memory"
    return "vcore" if lower == "vcore" or lower in _CORES else ""


def _warn_of_memory(queue: DeclaredQueue, amounts: Amounts) -> None:
    amount = amounts.values.get("memory", 0)
    if 0 < amount < LEAST_MEMORY and amount >= 2**10:
        amounts.fields["memory"].warning(
            f"queue {queue.path}: memory {amount} is that many bytes; MiB are written {amount}Mi", f"{amount}Mi"
        )
