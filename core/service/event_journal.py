"""The latest events, and the decisions beside them, kept to be read later and followed live.

Events are those of the history, numbered as REST shows them (rest.md 4.2). Decisions are attempts to preempt that came
to something, and configurations. They have a ring of their own: a busy core pushes an event out within seconds, and
what was preempted should be seen for longer. Each decision remembers which event came next, so that both can be read in
the order in which they happened.

To follow: ``journal.events.subscribe(...)`` and, when writing to a client, a place from ``journal.places`` and a turn
of a :class:`kornel.core.service.event_streams.Pace` before each write. To store everything: ``journal.events.get``
from the last position on, with a remark where it was overtaken.

Tracking switched off: nothing more is kept of either, and what is kept stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.config.event_settings import EventSettings, event_settings
from kornel.core.domain.effects import Effect, EventRecorded, PlacementRecorded, PreemptionDecided
from kornel.core.domain.event_records import EVENTS_OF_PLACEMENT, select_records, unpack_effects
from kornel.core.domain.events import EventDetail
from kornel.core.domain.reasons import Outcome
from kornel.core.service.configuration_history import Version
from kornel.core.service.event_ring import Ring
from kornel.core.service.event_streams import StreamPlaces

DECISIONS_KEPT: Final = 10_000
APPLICATIONS_KNOWN: Final = 100_000
"""The most applications whose queue is remembered, the latest ones, also after they left it."""

ROUTINE: Final = frozenset(
    {
        Outcome.ATTEMPTS_EXHAUSTED,
        Outcome.ASK_MAY_NOT_PREEMPT,
        Outcome.ALREADY_TRIGGERED,
        Outcome.REQUIRED_NODE,
        Outcome.TOO_YOUNG,
        Outcome.NO_GUARANTEE,
        Outcome.ASK_EXCEEDS_GUARANTEE,
        Outcome.NOT_UNDER_GUARANTEE,
        Outcome.FENCED_AT_LEAF,
        Outcome.NO_CANDIDATES,
        Outcome.NO_NODE,
        Outcome.USER_QUOTA,
        Outcome.NOTHING_TO_DO,
    }
)
"""Attempts that end so come by the thousand and change nothing: they are not kept."""

_QUEUE_APP: Final = int(EventDetail.QUEUE_APP)
_DETAIL_OF: Final = itemgetter(EventRecorded._fields.index("detail"))
"""Asks without a step of Python for each event; of a placement it gets a text, which is no detail."""


class Decision(NamedTuple):
    """A decision to preempt among the events. ``next_event``: number of the first event that came after it."""

    next_event: int
    what: PreemptionDecided | Version


class EventJournal:
    """An ``EffectObserver``. ``instance``: names this life of the core; numbers of entries mean nothing in another."""

    def __init__(self, instance: str, *, logger: FilteringBoundLogger) -> None:
        self.instance: Final = instance
        self.settings = EventSettings()
        """The settings in force."""
        self.events: Final[Ring[EventRecorded]] = Ring(self.settings.ring_capacity, unpack_effects)
        self.decisions: Final[Ring[Decision]] = Ring(DECISIONS_KEPT)
        self.places: Final = StreamPlaces(lambda: self.settings)
        """The clients that follow events, over whatever protocol."""
        self._logger = logger
        self._problems: tuple[str, ...] = ()
        self._queues: dict[str, str] = {}

    def follow_settings(self, extra_config: Mapping[str, str]) -> None:
        """Follow *extra_config* from here on."""
        self.settings, problems = event_settings(extra_config)
        if problems and problems != self._problems:
            self._logger.warning("event settings that cannot be used", problems=problems)
        self._problems = problems
        self.events.resize(self.settings.ring_capacity)

    def observe(self, effects: Sequence[Effect]) -> None:
        """Keep what *effects* say of the history."""
        if not self.settings.tracking:
            return
        kinds = Counter(map(type, effects))
        if PreemptionDecided in kinds:
            self._keep_decisions(effects)
        records = select_records(effects)
        if _QUEUE_APP in map(_DETAIL_OF, records):
            for event in records:
                if type(event) is EventRecorded and event.detail == _QUEUE_APP:
                    self._note_queue(event)
        self.events.append_packed(records, kinds[EventRecorded] + EVENTS_OF_PLACEMENT * kinds[PlacementRecorded])

    def version_added(self, version: Version) -> None:
        """Keep a configuration that came into force or was refused."""
        if self.settings.tracking:
            self.decisions.append_entries([Decision(self.events.next_id, version)])

    def queue_of(self, application_id: str) -> str:
        """Returns the full path of the queue an application is in, or was in last; empty: not known (any more)."""
        return self._queues.get(application_id, "")

    def _keep_decisions(self, effects: Sequence[Effect]) -> None:
        next_event = self.events.next_id
        found = []
        for effect in effects:
            if type(effect) is EventRecorded:
                next_event += 1
            elif type(effect) is PlacementRecorded:
                next_event += EVENTS_OF_PLACEMENT
            elif type(effect) is PreemptionDecided and (effect.victims or effect.outcome not in ROUTINE):
                found.append(Decision(next_event, effect))
        self.decisions.append_entries(found)

    def _note_queue(self, event: EventRecorded) -> None:
        queues = self._queues
        queues.pop(event.reference_id, None)
        queues[event.reference_id] = event.object_id
        if len(queues) > APPLICATIONS_KNOWN:
            del queues[next(iter(queues))]
