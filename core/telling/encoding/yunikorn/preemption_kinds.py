"""Writes the kinds of preemption as pages and programs need them to show decisions. YuniKorn has no such document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kornel.core.domain.reasons import Outcome
from kornel.core.preemption import kind as kinds
from kornel.core.preemption.registry import SOURCES
from kornel.core.telling.encoding.documents import Document, Kind, always, listed
from kornel.core.telling.encoding.values import COUNT, FLAG, TEXT, write_with

_WORD: Final = write_with(TEXT, str)

PREEMPTION_ENDING: Final = Document(
    "PreemptionEnding",
    kinds.Ending,
    {"leaves": always(FLAG, "leaves"), "tone": always(_WORD, "tone")},
    left_out=("words", "law", "counted", "level"),
    description="leaves: the release of the victims was asked for. tone: good, accent, warn, bad or empty.",
)


class _Source(NamedTuple):
    """A kind, or the governor, which has no laws of its own."""

    name: str
    laws: Sequence[int]
    allowed_by: str
    colour: kinds.Colour
    outcomes: Mapping[Outcome, kinds.Ending]


def _write_endings(outcomes: Mapping[Outcome, kinds.Ending]) -> dict[str, Any]:
    return {str(outcome): PREEMPTION_ENDING.write(ending) for outcome, ending in outcomes.items()}


PREEMPTION_KIND: Final = Document(
    "PreemptionKind",
    _Source,
    {
        "name": always(TEXT, "name"),
        "laws": always(Kind({"type": "array", "items": COUNT.schema}, list), "laws"),
        "law": always(TEXT, "allowed_by"),
        "colour": always(_WORD, "colour"),
        "outcomes": always(
            Kind(
                {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/PreemptionEnding"}},
                _write_endings,
            ),
            "outcomes",
        ),
    },
    description="Decisions have its name. laws: the numbers of the laws that bind it; law: what allows it to act.",
)


class _Sources(NamedTuple):
    """All sources of decisions about preemption, in the order in which they run."""

    kinds: Sequence[_Source]


PREEMPTION_KINDS: Final = Document(
    "PreemptionKinds",
    _Sources,
    {"kinds": always(listed(PREEMPTION_KIND), "kinds")},
    description="The governor is last.",
)


def write_preemption_kinds() -> dict[str, Any]:
    """Returns all sources of decisions about preemption: the kinds in the order in which they run, then the
    governor."""
    return PREEMPTION_KINDS.write(_Sources([_source_of(source) for source in SOURCES.values()]))


def _source_of(source: kinds.DecisionSource) -> _Source:
    laws, allowed_by = (source.laws, source.allowed_by) if isinstance(source, kinds.Kind) else ((), "")
    return _Source(source.name, laws, allowed_by, source.colour, source.outcomes)
