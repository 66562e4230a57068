"""One call of the engine as a value: what decides, and nothing that only shows."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kornel.core.domain.commands import Command
from kornel.core.service.resuming import Receipt


class CallKind(IntEnum):
    """The calls of the engine that have a bearing on what it decides, and notes for the core after this one, which are
    no calls; the numbers are those of ``JournalCall``."""

    BEGIN = 1
    RECORD_EVENTS = 2
    COMMAND = 3
    SLICE = 4
    PREEMPTION = 5
    NOTE = 6
    REFUSAL = 7


class CallOutcome(IntEnum):
    """The ways in which a call ends; the numbers are those of ``JournalOutcome``. After FAILED the core goes on as if
    the call had never been made."""

    DONE = 0
    REFUSED = 1
    FAILED = 2


class Beginning(NamedTuple):
    """A core of *version* that begins to write. *afresh*: with an empty engine. The rest: its options."""

    version: str
    afresh: bool
    reservation_delay_ns: int | None
    reservation_percent: int


class EngineCall(NamedTuple):
    """One call. ``command`` for COMMAND and REFUSAL, ``budget`` for SLICE, ``beginning`` for BEGIN alone. ``receipt``:
    where a command came from, if the core after this one has to know. ``note``: of NOTE alone, a ``JournalNote``."""

    kind: CallKind
    now_ns: int
    command: Command | None = None
    budget: int = 0
    beginning: Beginning | None = None
    receipt: Receipt | None = None
    note: bytes = b""


class CallResult(NamedTuple):
    """The result of a call: how it ended, the number of its effects, and the sum of all effects so far."""

    outcome: CallOutcome
    effects: int
    effects_sum: int
