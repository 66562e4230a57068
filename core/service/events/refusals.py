"""The latest entries and configurations that the core refused: what, why, when, and of which manager.

They are kept in memory, some hundreds of each kind and manager, so that a flood of refused asks does not push out the
one node that was refused this morning. Refused applications and configurations are in the stored history too.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from heapq import merge
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.effects import AllocationRejected, ApplicationRejected, Effect, NodeRejected
from kornel.core.domain.names import LONGEST_NAME
from kornel.core.domain.reasons import Rejection
from kornel.core.service.configuration.configuration_history import Version
from kornel.core.service.machine.clock import SECOND_NS, Clock
from kornel.core.service.metrics.metrics import CallingObserver, EffectObserver

KEPT_OF_KIND: Final = 500
"""The most refusals of each kind that are remembered of each manager."""

MOST_MANAGERS: Final = 64
"""The most managers of which refusals are remembered, those included that were not registered."""

LONGEST_SENTENCE: Final = 2_000
"""The most characters of a reason that are kept: the reasons against a configuration may have thousands of lines."""

LINES_AT_ONCE: Final = 20
"""The most log lines about refusals within :data:`LINE_WINDOW_NS`; the others are counted in one line."""

LINE_WINDOW_NS: Final = 10 * SECOND_NS

_REFUSED: Final = frozenset({AllocationRejected, ApplicationRejected, NodeRejected})
_TOKENS: Final = frozenset(map(str, Rejection))
BAD_TEXT: Final = "bad-configuration"
"""The token of refused configurations."""


class RefusalKind(StrEnum):
    """The kind of thing that was refused. Asks are all entries of an allocation request."""

    ASK = "ask"
    APPLICATION = "application"
    NODE = "node"
    CONFIGURATION = "configuration"


_LINES: Final = {kind: f"{kind} refused" for kind in RefusalKind}
_NAMES: Final = ("name", "partition", "application_id", "queue", "user")


class Refusal(NamedTuple):
    """One refusal.

    number       from 1, in the order of the refusals of this core
    name         the key or ID, or the number of a configuration's version
    partition    the full name given by the entry; empty for a configuration
    reason       token of :class:`kornel.core.domain.reasons.Rejection`, ``bad-configuration``, or empty
    message      the reason in words
    """

    number: int
    at_ns: int
    kind: RefusalKind
    name: str
    rm_id: str
    partition: str
    application_id: str
    queue: str
    user: str
    reason: str
    message: str


class RefusalKeeper:
    """Keeps the refusals of all managers. ``counts``: how many of each kind there were since the core started."""

    def __init__(self, *, clock: Clock, logger: FilteringBoundLogger) -> None:
        self._clock = clock
        self._logger = logger
        self._kept: OrderedDict[str, dict[RefusalKind, deque[Refusal]]] = OrderedDict()
        """The refusals by manager, so that none takes the room of another one; the last one refused is the last."""
        self._last = 0
        self._window_ns = 0
        self._lines = 0
        self.counts: Counter[RefusalKind] = Counter()

    def of_manager(self, manager: Callable[[], str]) -> EffectObserver:
        """Returns an observer for one engine. *manager* returns the manager that is registered there."""
        return CallingObserver(lambda effects: self.keep_refused(effects, manager))

    def keep_refused(self, effects: Sequence[Effect], manager: Callable[[], str]) -> None:
        """Keep the refusals among *effects*, of the engine where *manager* is registered."""
        if _REFUSED.isdisjoint(map(type, effects)):
            return
        now_ns, rm_id = self._clock.now_ns(), manager()
        for effect in effects:
            if isinstance(effect, AllocationRejected):
                kind, name, owner = RefusalKind.ASK, effect.key, (effect.application_id, "", "")
            elif isinstance(effect, ApplicationRejected):
                kind, name = RefusalKind.APPLICATION, effect.application_id
                owner = (effect.application_id, effect.queue, effect.user)
            elif isinstance(effect, NodeRejected):
                kind, name, owner = RefusalKind.NODE, effect.node_id, ("", "", "")
            else:
                continue
            token, _, sentence = effect.reason.partition(": ")
            if token not in _TOKENS:
                token, sentence = "", effect.reason
            self._keep(Refusal(0, now_ns, kind, name, rm_id, effect.partition, *owner, token, sentence))
            if self._has_line(now_ns):
                self._logger.info(
                    _LINES[kind],
                    rm_id=rm_id,
                    partition=effect.partition,
                    name=name,
                    application_id=owner[0],
                    reason=token,
                    detail=sentence,
                )

    def version_added(self, version: Version) -> None:
        """Keep a configuration that was refused; the refusal has been logged already."""
        if not version.applied:
            what, by = (RefusalKind.CONFIGURATION, str(version.number), version.rm_id), version.principal
            self._keep(Refusal(0, version.at_ns, *what, "", "", "", by, BAD_TEXT, version.reason))

    def newest(self, kinds: Sequence[RefusalKind] = (), partition: str = "") -> list[Refusal]:
        """Returns the kept refusals of *kinds* that concern *partition*, the newest first; empty: all of them.

        A configuration concerns every partition of its manager.
        """
        kept = [reversed(of_kind[kind]) for of_kind in self._kept.values() for kind in kinds or RefusalKind]
        found = merge(*kept, key=lambda refusal: -refusal.number)
        if not partition:
            return list(found)
        return [
            each
            for each in found
            if each.partition == partition or (not each.partition and partition.startswith(f"[{each.rm_id}]"))
        ]

    def _keep(self, refusal: Refusal) -> None:
        """Add *refusal* with the next number, and with texts of bounded length."""
        self._last += 1
        self.counts[refusal.kind] += 1
        rm_id, names = refusal.rm_id, {name: getattr(refusal, name)[:LONGEST_NAME] for name in _NAMES}
        if rm_id not in self._kept:
            self._kept[rm_id] = {each: deque(maxlen=KEPT_OF_KIND) for each in RefusalKind}
        self._kept.move_to_end(rm_id)
        if len(self._kept) > MOST_MANAGERS:
            self._kept.popitem(last=False)
        kept = refusal._replace(number=self._last, message=refusal.message[:LONGEST_SENTENCE], **names)
        self._kept[rm_id][refusal.kind].append(kept)

    def _has_line(self, at_ns: int) -> bool:
        """Tells whether another line may be logged now. Logs how many lines were left out in the window before."""
        if at_ns - self._window_ns >= LINE_WINDOW_NS:
            if self._lines > LINES_AT_ONCE:
                self._logger.info("more entries refused", entries=self._lines - LINES_AT_ONCE)
            self._window_ns = at_ns
            self._lines = 0
        self._lines += 1
        return self._lines <= LINES_AT_ONCE
