"""The sum of effects, by which two engines that decided the same recognise each other.

It is a CRC-32 over the text of one effect after the other since the beginning of an epoch. The text says everything
that was decided; what of an :class:`kornel.core.domain.effects.Allocated` repeats the ask is left out, since the ask
is in the journal. Events tell of decisions once more and are more than all others together: of them only the number
counts, which each record has beside the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, compress, repeat
from operator import is_, itemgetter, not_
from typing import Final, cast
from zlib import crc32

from kornel.core.domain.commands import AllocationSpec
from kornel.core.domain.effects import Allocated, Effect, EventRecorded, PlacementRecorded
from kornel.core.domain.resources import Resources

_EVENTS: Final = frozenset({EventRecorded, PlacementRecorded})
_ONLY_ALLOCATED: Final = {Allocated}

_SPEC: Final = itemgetter(Allocated._fields.index("spec"))
_NODE: Final = itemgetter(Allocated._fields.index("node_id"))
_RESOURCES: Final = itemgetter(Allocated._fields.index("resources"))
_KEY: Final = itemgetter(AllocationSpec._fields.index("key"))
_APPLICATION: Final = itemgetter(AllocationSpec._fields.index("application_id"))
_ASKED: Final = itemgetter(AllocationSpec._fields.index("resources"))
_INSTANCE: Final = itemgetter(AllocationSpec._fields.index("instance"))


def sum_effects(effects: Iterable[Effect], before: int) -> int:
    """Returns the sum of *effects* behind those that came to *before*."""
    return crc32(write_effects(effects).encode("utf-8", "surrogatepass"), before)


def write_effects(effects: Iterable[Effect]) -> str:
    """Returns *effects* as text: equal for equal decisions, in any process."""
    effects = list(effects)
    written = list(compress(effects, map(not_, map(_EVENTS.__contains__, map(type, effects)))))
    if set(map(type, written)) == _ONLY_ALLOCATED:
        plain = _write_plain(cast("list[Allocated]", written))
        if plain is not None:
            return plain
    parts: list[str] = []
    for effect in written:
        if type(effect) is Allocated:
            spec, node_id, resources = effect
            parts += ("=", spec[0], spec[1], node_id)
            if resources is not spec.resources and resources != spec.resources:
                parts.append(_write_value(resources))
            if spec.instance:
                parts.append(str(spec.instance))
        else:
            parts.append(type(effect).__name__)
            parts.extend(map(_write_value, effect))
    parts.append("")
    return "\x1f".join(parts)


def _write_plain(placed: Sequence[Allocated]) -> str | None:
    """Returns the text of *placed* if each has what it asked for and is the only one of its key, as nearly all are;
    otherwise ``None``. No step of Python is made for each."""
    specs = list(map(_SPEC, placed))
    if any(map(_INSTANCE, specs)) or not all(map(is_, map(_RESOURCES, placed), map(_ASKED, specs))):
        return None
    columns = repeat("="), map(_KEY, specs), map(_APPLICATION, specs), map(_NODE, placed)
    return "\x1f".join(chain(chain.from_iterable(zip(*columns, strict=False)), ("",)))


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
