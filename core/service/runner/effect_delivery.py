"""Delivers effects of the engine, once they may leave the core: to shims, then to observers. The log gets decisions
about preemption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.effects import Effect, PreemptionDecided
from kornel.core.preemption.kind import Level
from kornel.core.preemption.registry import ending_of
from kornel.core.service.callbacks.callback_board import CallbackBoard
from kornel.core.service.metrics.metrics import EffectObserver, ServiceMetrics
from kornel.core.service.streams.streams import Switchboard


class EffectDelivery:
    """The receivers of the effects of one engine. *switchboard* and *callbacks* lead to the shims, and *observers* come
    after them."""

    def __init__(
        self,
        switchboard: Switchboard,
        callbacks: CallbackBoard,
        observers: Sequence[EffectObserver],
        metrics: ServiceMetrics,
        logger: FilteringBoundLogger,
    ) -> None:
        self._switchboard: Final = switchboard
        self._callbacks: Final = callbacks
        self._observers: Final = tuple(observers)
        self._metrics: Final = metrics
        self._logger: Final = logger

    def deliver_effects(self, effects: list[Effect]) -> None:
        """Delivers *effects* in their order."""
        if PreemptionDecided in map(type, effects):
            for effect in effects:
                if isinstance(effect, PreemptionDecided):
                    self._metrics.preemption_decisions += 1
                    self._log_preemption(effect)
        self._switchboard.deliver_effects(effects)
        self.deliver_beside_streams(effects)

    def deliver_beside_streams(self, effects: list[Effect]) -> None:
        """Delivers *effects* to all but the streams of requests."""
        self._callbacks.deliver_effects(effects)
        for observer in self._observers:
            observer.observe(effects)

    def _log_preemption(self, decided: PreemptionDecided) -> None:
        match ending_of(decided).level:
            case Level.DEBUG:
                log = self._logger.debug
            case Level.INFO:
                log = self._logger.info
            case Level.WARNING:
                log = self._logger.warning
        log(
            "preemption decided",
            partition=decided.partition,
            kind=decided.kind,
            outcome=str(decided.outcome),
            key=decided.key,
            application_id=decided.application_id,
            queue=decided.queue,
            node_id=decided.node_id,
            detail=decided.detail,
            victims=[victim.key for victim in decided.victims],
        )
