"""Lists the records of the kinds of preemption. A new kind needs an import and an entry in :data:`KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kornel.core.domain.commands import PreemptionNoticeAnswer
from kornel.core.domain.effects import PreemptionDecided
from kornel.core.preemption.guarantee.kind import GUARANTEE, WITHIN
from kornel.core.preemption.kind import GOVERNOR, UNREMARKABLE, DecisionSource, Ending, Kind
from kornel.core.preemption.monitor.kind import MONITOR
from kornel.core.preemption.quota.by_hand.kind import BY_HAND
from kornel.core.preemption.quota.kind import QUOTA
from kornel.core.preemption.required_node.kind import REQUIRED_NODE
from kornel.core.state.partition_state import PartitionState

KINDS: Final[tuple[Kind, ...]] = (
    REQUIRED_NODE,
    QUOTA,
    GUARANTEE,
    WITHIN,
    MONITOR,
)
"""The kinds in the order of :data:`kornel.core.domain.preemption_kinds.KINDS`."""

SOURCES: Final[Mapping[str, DecisionSource]] = MappingProxyType(
    {each.name: each for each in (*KINDS, BY_HAND, GOVERNOR)}
)
"""The sources of decisions about preemption, by name."""

_BY_NAME: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in KINDS})


def kind_called(name: str) -> Kind | None:
    """Returns the kind called *name*; ``None``: there is none, which may be so for a decision recorded by an older
    core."""
    return _BY_NAME.get(name)


def laws_of(name: str) -> str:
    """Returns the numbers of the laws that bind the kind called *name*; empty: no law does."""
    kind = _BY_NAME.get(name)
    return kind.law_numbers if kind is not None else ""


def allowed_by(name: str) -> str:
    """Returns what allows the kind called *name* to ask for releases; empty: nothing does."""
    kind = _BY_NAME.get(name)
    return kind.allowed_by if kind is not None else ""


def configure_kinds(state: PartitionState, now_ns: int) -> None:
    """Makes every kind follow the configuration that is now in force in *state*."""
    for kind in KINDS:
        kind.driver.configured(state, now_ns)


def begin_kinds_again(state: PartitionState, now_ns: int) -> None:
    """Makes every kind begin its timers again, as after a restart of the core."""
    for kind in KINDS:
        kind.driver.begin_again(state, now_ns)


def repeat_notices(state: PartitionState) -> None:
    """Sends the open notices again, because a shim has subscribed."""
    for kind in KINDS:
        kind.driver.repeat_notices(state)


def note_answer(state: PartitionState, answer: PreemptionNoticeAnswer) -> bool:
    """Notes the *answer* to a notice. Returns whether the notice belongs to a kind in this partition."""
    return any(kind.driver.note_answer(state, answer) for kind in KINDS)


def ending_of(decided: PreemptionDecided) -> Ending:
    """Returns the treatment of the outcome of *decided* by its source; unremarkable if no source has that name."""
    source = SOURCES.get(decided.kind)
    return source.ending_of(decided.outcome) if source is not None else UNREMARKABLE
