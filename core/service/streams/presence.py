"""The presence of the registered manager, which counts as there while one of its streams is open.

The engine does not know of streams, and schedules for a manager that is gone as for any other; its decisions wait until
the manager comes back. Users have to know, because otherwise everything looks well while nothing starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from kornel.core.service.machine.clock import SECOND_NS, Clock, Timer

GRACE_NS: Final = 10 * SECOND_NS
"""The time within which a manager that restarts has to open its streams again; one that takes longer counts as gone."""


class Presence(NamedTuple):
    """The present state of the manager ``rm_id``.

    streams            the number of its open streams, each counted from its first message on
    no_stream_since_ns since when none is open, at the earliest from the registration; ``None``: one is open
    gone               none has been open for longer than :data:`GRACE_NS`
    """

    rm_id: str
    streams: int
    no_stream_since_ns: int | None
    gone: bool

    @property
    def words(self) -> str:
        """Returns a sentence about a manager that is gone; empty for one that is there."""
        if not self.gone or self.no_stream_since_ns is None:
            return ""
        since = datetime.fromtimestamp(self.no_stream_since_ns // SECOND_NS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"no stream of resource manager {self.rm_id} open since {since}"


class PresenceKeeper:
    """Counts the streams of managers. *on_change* is called when the registered manager begins to count as gone, or is
    back."""

    def __init__(self, clock: Clock, on_change: Callable[[Presence], None] = lambda presence: None) -> None:
        self._clock = clock
        self._on_change = on_change
        self._streams: Counter[str] = Counter()
        self._rm_id = ""
        self._since_ns: int | None = None
        self._told_gone = False
        self._timer: Timer | None = None

    @property
    def now(self) -> Presence | None:
        """The presence of the registered manager; ``None``: none is registered."""
        if not self._rm_id:
            return None
        gone = self._since_ns is not None and self._clock.now_ns() >= self._since_ns + GRACE_NS
        return Presence(self._rm_id, self._streams[self._rm_id], self._since_ns, gone)

    def note_registered(self, rm_id: str) -> None:
        """Note that *rm_id* is registered from now on; empty: no manager is."""
        self._rm_id = rm_id
        self._since_ns = None
        self._follow_streams()

    def note_opened(self, rm_id: str) -> None:
        """Note that a stream belongs to *rm_id* from now on."""
        self._streams[rm_id] += 1
        self._follow_streams()

    def note_closed(self, rm_id: str) -> None:
        """Note that a stream of *rm_id* is gone."""
        self._streams[rm_id] -= 1
        if not self._streams[rm_id]:
            del self._streams[rm_id]
        self._follow_streams()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _follow_streams(self) -> None:
        absent = bool(self._rm_id) and not self._streams[self._rm_id]
        if not absent:
            self._since_ns = None
        elif self._since_ns is None:
            self._since_ns = self._clock.now_ns()
        self._check_presence()

    def _check_presence(self) -> None:
        self.stop()
        found = self.now
        if found is not None and found.no_stream_since_ns is not None and not found.gone:
            self._timer = self._clock.call_at(found.no_stream_since_ns + GRACE_NS, self._check_presence)
        gone = found is not None and found.gone
        if gone is not self._told_gone:
            self._told_gone = gone
            if found is not None:
                self._on_change(found)
