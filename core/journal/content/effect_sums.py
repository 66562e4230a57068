"""The sum of effects, which is equal for two engines that made the same decisions.

It is a CRC-32 over the texts of all effects since the beginning of an epoch. The text contains everything that was
decided; the fields of an :class:`kornel.core.domain.effects.Allocated` that repeat the ask are left out, since the ask
is in the journal. Events only repeat decisions and are more numerous than all other effects together, so only their
number counts, which each record has in addition to the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast
from zlib import crc32

from kornel.core.domain.effects import Allocated, ApplicationAccepted, ApplicationUpdated, Effect
from kornel.core.domain.history.event_records import leave_out_records
from kornel.core.domain.resources import Resources


def sum_effects(effects: Iterable[Effect], before: int) -> int:
    """Returns the sum after *effects*; *before* is the sum of all earlier effects."""
    return crc32(write_effects(effects).encode("utf-8", "surrogatepass"), before)


def write_effects(effects: Iterable[Effect]) -> str:
    """Returns *effects* as text, which is equal for equal decisions in any process."""
    parts: list[str] = []
    for effect in leave_out_records(effects):
        kind = type(effect)
        if kind is Allocated:
            # The exact class is compared, which costs less than isinstance.
            spec, node_id, resources, tags = cast("Allocated", effect)
            parts += ("=", spec[0], spec[1], node_id)
            if resources is not spec.resources and resources != spec.resources:
                parts.append(_write_value(resources))
            if spec.instance:
                parts.append(str(spec.instance))
            if tags:
                parts.append(_write_value(tags))
        elif kind is ApplicationUpdated:
            # The next two kinds are written as below, but without a call for each of their values.
            name, state, at_ns, message, partition, queue, user, submitted_ns = cast("ApplicationUpdated", effect)
            since = (partition, queue, user, str(submitted_ns))
            parts += ("ApplicationUpdated", name, state, str(at_ns), message, *since)
        elif kind is ApplicationAccepted:
            parts.append("ApplicationAccepted")
            parts += cast("ApplicationAccepted", effect)
        else:
            parts.append(kind.__name__)
            parts.extend(map(_write_value, effect))
    parts.append("")
    return "\x1f".join(parts)


def _write_value(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, Resources):
        return repr(value)
    if isinstance(value, tuple):
        return "(" + "\x1e".join(map(_write_value, value)) + ")"
    return "-" if value is None else repr(value)
