"""One call of the engine as a value, with everything that influences decisions and nothing else."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kornel.core.domain.commands import Command
from kornel.core.service.streams.resuming import Receipt
from kornel.core.state.options import EngineOptions


class CallKind(IntEnum):
    """The kinds of calls that influence the decisions of an engine, and notes for the next core, which are no calls.
    BEGIN is for all places of the core, OPEN and CLOSE are the first and the last record of a further place. The
    numbers are those of ``JournalCall``."""

    BEGIN = 1
    RECORD_EVENTS = 2
    COMMAND = 3
    SLICE = 4
    PREEMPTION = 5
    NOTE = 6
    REFUSAL = 7
    OPEN = 8
    CLOSE = 9


class CallOutcome(IntEnum):
    """The ways in which a call ends; the numbers are those of ``JournalOutcome``. After FAILED the core continues as if
    the call had never been made."""

    DONE = 0
    REFUSED = 1
    FAILED = 2


class Beginning(NamedTuple):
    """A core of *version* begins to write. *afresh* says that it does so with an empty engine."""

    version: str
    afresh: bool
    options: EngineOptions


class EngineCall(NamedTuple):
    """One call. ``command`` for COMMAND and REFUSAL, ``budget`` for SLICE, ``beginning`` for BEGIN and OPEN.
    ``receipt``: the source of a command, if the next core has to know it. ``note``: only for NOTE, a ``JournalNote``.
    ``place``: the number of the place whose engine was called."""

    kind: CallKind
    now_ns: int
    command: Command | None = None
    budget: int = 0
    beginning: Beginning | None = None
    receipt: Receipt | None = None
    note: bytes = b""
    place: int = 0


class CallResult(NamedTuple):
    """The result of a call: its outcome, the number of its effects, and the sum of all effects of its place so far."""

    outcome: CallOutcome
    effects: int
    effects_sum: int
