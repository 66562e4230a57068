"""The part of a core's journal that belongs to one place, that is to one resource manager.

All places write into one journal: the records have one sequence and one chain of checksums, and are committed together.
Each place has its engine, the sum of its effects, its gate, and what its next core has to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kornel.core.domain.effects import Effect
from kornel.core.journal.content.calls import CallOutcome, EngineCall
from kornel.core.journal.content.notes import encode_note
from kornel.core.journal.content.replay import ReplayedPlace
from kornel.core.journal.writing.committer import Committer
from kornel.core.journal.writing.gate import JournalGate
from kornel.core.service.configuration.configuration_history import ConfigurationNote
from kornel.core.snapshot.engines import has_work_under_way


class JournalPlace:
    """One place of a journal that is written. It records the calls of its engine."""

    def __init__(self, replayed: ReplayedPlace, gate: JournalGate, committer: Committer, now_ns: int) -> None:
        """Continues *replayed* at *now_ns*."""
        self._committer = committer
        self.number: Final = replayed.number
        """The number of the place."""
        self.engine: Final = replayed.engine
        """The engine in its state at the end of the journal. Its calls are written from now on."""
        self.gate: Final = gate
        """The gate through which everything leaves that the engine decides."""
        self.untold: Final = replayed.list_untold()
        """The effects that may not have arrived when the last core ended; they are sent again."""
        self.configured: Final = replayed.configured
        """The configuration with which the engine continues; ``None``: no manager is registered."""
        self.kept: Final = replayed.kept
        """The versions of the configuration that earlier cores have noted. Further ones are added."""
        self.progress: Final = replayed.progress
        """The progress of the entries sent and received between the manager and the earlier cores."""
        self.engine.record_calls(self, now_ns)

    def add(self, call: EngineCall, outcome: CallOutcome, effects: Sequence[Effect]) -> None:
        """Adds *call* to the records to be written, with its outcome and effects."""
        self._committer.add(call, outcome, effects)
        self.gate.note_added(self._committer.added)

    def take_note(self, note: ConfigurationNote) -> None:
        """Write *note* for the next core."""
        self.kept.take_note(note)
        self.engine.record_note(encode_note(note, self.kept.history).SerializeToString())

    def has_work_under_way(self) -> bool:
        """Tells whether the engine has work that continues from slice to slice, so that no snapshot could be taken
        now."""
        return has_work_under_way(self.engine)
