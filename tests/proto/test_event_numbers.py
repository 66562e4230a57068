"""The engine's vocabulary of events is that of the contract, member by member."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from kornel.core.domain.commands import TerminationType
from kornel.core.domain.history.events import EventChange, EventDetail, EventType, removal_detail
from kornel.si.v1 import si_pb2 as si


@pytest.mark.parametrize(
    ("ours", "theirs", "without"),
    [
        (EventType, si.EventRecord.Type, {"UNKNOWN_EVENTRECORD_TYPE"}),
        (EventChange, si.EventRecord.ChangeType, set()),
        # Details that only older generations knew (protocol.md 3.2).
        (EventDetail, si.EventRecord.ChangeDetail, {"APP_STARTING", "NODE_READY"}),
    ],
)
def test_names_and_numbers_agree(ours: type[IntEnum], theirs: Any, without: set[str]) -> None:
    """2.6: every name of the current generation stands for the same number."""
    known = {"NONE" if name == "DETAILS_NONE" else name: number for name, number in theirs.items()}
    assert {member.name: member.value for member in ours} == {
        name: number for name, number in known.items() if name not in without
    }


@pytest.mark.parametrize(
    ("termination", "detail"),
    [
        (None, EventDetail.ALLOC_NODEREMOVED),
        (TerminationType.UNKNOWN, EventDetail.ALLOC_CANCEL),
        (TerminationType.STOPPED_BY_RM, EventDetail.ALLOC_CANCEL),
        (TerminationType.TIMEOUT, EventDetail.ALLOC_TIMEOUT),
        (TerminationType.PREEMPTED_BY_SCHEDULER, EventDetail.ALLOC_PREEMPT),
        (TerminationType.PLACEHOLDER_REPLACED, EventDetail.ALLOC_REPLACED),
        (99, EventDetail.ALLOC_CANCEL),
    ],
)
def test_why_an_allocation_ended(termination: int | None, detail: EventDetail) -> None:
    """14: the mapping of reasons; numbers that nobody knows count as stopped by the shim."""
    assert removal_detail(termination) is detail
