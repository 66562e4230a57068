"""Keeps the latest events and decisions, to be read later and followed live.

Events are those of the event history, numbered as in REST (rest.md 4.2). Decisions are configurations and the attempts
to preempt that had a result. They have a ring of their own, because a busy core drops an event after seconds, while
preemptions should be visible for longer. Each decision has the number of the event that came next, so that both can be
read in the order in which they happened.

To follow events, use ``journal.events.subscribe(...)`` and, when writing to a client, a place from ``journal.places``
and a turn of a :class:`kornel.core.service.events.event_streams.Pace` before each write. To store all events, use
``journal.events.get`` from the last position on, and note where events were missed.

If tracking is switched off, nothing more is kept, and what was kept stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from operator import is_, itemgetter
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.config.keys.event_settings import EventSettings, event_settings
from kornel.core.domain.effects import Effect, EventRecorded, PreemptionDecided
from kornel.core.domain.history.event_records import count_all_events, count_events, select_records, unpack_effects
from kornel.core.domain.history.events import EventDetail
from kornel.core.domain.reasons import Outcome
from kornel.core.service.configuration.configuration_history import Version
from kornel.core.service.events.event_ring import Ring
from kornel.core.service.events.event_sizes import measure_records
from kornel.core.service.events.event_streams import StreamPlaces

DECISIONS_KEPT: Final = 10_000
APPLICATIONS_KNOWN: Final = 100_000
"""The most applications whose queue is remembered, even after they have left it; the latest ones are kept."""

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
"""Outcomes of attempts that are not kept, because there are thousands of them and they change nothing."""

_QUEUE_APP: Final = int(EventDetail.QUEUE_APP)
_DETAIL_OF: Final = itemgetter(EventRecorded._fields.index("detail"))
"""Reads the detail of an event in C, so that no Python code runs for each event."""


class Decision(NamedTuple):
    """A decision to preempt among the events. ``next_event``: the number of the first event after it."""

    next_event: int
    what: PreemptionDecided | Version


class EventJournal:
    """Keeps the events and decisions that it observes as an ``EffectObserver``. ``instance`` names this run of the
    core; numbers of entries have no meaning in another run."""

    def __init__(self, instance: str, *, logger: FilteringBoundLogger) -> None:
        self.instance: Final = instance
        self.settings = EventSettings()
        """The settings in force."""
        self.events: Final[Ring[EventRecorded]] = Ring(self.settings.ring_capacity, unpack_effects, measure_records)
        self.decisions: Final[Ring[Decision]] = Ring(DECISIONS_KEPT)
        self.places: Final = StreamPlaces(lambda: self.settings)
        """The clients that follow events, over any protocol."""
        self._logger = logger
        self._problems: tuple[str, ...] = ()
        self._queues: dict[str, str] = {}

    def follow_settings(self, extra_config: Mapping[str, str]) -> None:
        """Follows *extra_config* from now on."""
        self.settings, problems = event_settings(extra_config)
        if problems and problems != self._problems:
            self._logger.warning("event settings that cannot be used", problems=problems)
        self._problems = problems
        self.events.resize(self.settings.ring_capacity)

    def observe(self, effects: Sequence[Effect]) -> None:
        """Keeps the events and decisions among *effects*."""
        if not self.settings.tracking:
            return
        if PreemptionDecided in map(type, effects):
            self._keep_decisions(effects)
        records = select_records(effects)
        single = list(compress(records, map(partial(is_, EventRecorded), map(type, records))))
        if _QUEUE_APP in map(_DETAIL_OF, single):
            for event in single:
                if type(event) is EventRecorded and event.detail == _QUEUE_APP:
                    self._note_queue(event)
        self.events.append_packed(records, count_all_events(records))

    def version_added(self, version: Version) -> None:
        """Keep a configuration that came into force or was refused."""
        if self.settings.tracking:
            self.decisions.append_entries([Decision(self.events.next_id, version)])

    def queue_of(self, application_id: str) -> str:
        """Returns the full path of the queue in which an application is, or was last; empty: it is not known, or no
        longer known."""
        return self._queues.get(application_id, "")

    def _keep_decisions(self, effects: Sequence[Effect]) -> None:
        next_event = self.events.next_id
        found = []
        for effect in effects:
            next_event += count_events(effect)
            if type(effect) is PreemptionDecided and (effect.victims or effect.outcome not in ROUTINE):
                found.append(Decision(next_event, effect))
        self.decisions.append_entries(found)

    def _note_queue(self, event: EventRecorded) -> None:
        queues = self._queues
        queues.pop(event.reference_id, None)
        queues[event.reference_id] = event.object_id
        if len(queues) > APPLICATIONS_KNOWN:
            del queues[next(iter(queues))]
