"""Samples the usage of all queues from time to time, for the stored history.

At most one row a second is stored on average: the more queues are in use, the more rarely they are sampled. Other tasks
run between the steps of one sample.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import orjson
from structlog.typing import FilteringBoundLogger

from kornel.core.archive.usage_samples import UsageSample
from kornel.core.domain.resources import Resources, clamp_int64
from kornel.core.rest.serving.turns import gather_items
from kornel.core.service.machine.clock import SECOND_NS, Clock, Timer
from kornel.core.telling.queues.queue_views import QueueView
from kornel.core.telling.reader import PartitionReader

LEAST_PAUSE_NS: Final = 60 * SECOND_NS
NS_PER_ROW: Final = SECOND_NS


class UsageSampler:
    """Samples the usage of queues for the history. ``partitions`` returns the present partitions. ``keep`` gets the
    rows of one sample."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[PartitionReader]],
        keep: Callable[[Sequence[UsageSample]], None],
        *,
        clock: Clock,
        logger: FilteringBoundLogger,
    ) -> None:
        self._partitions = partitions
        self._keep = keep
        self._clock = clock
        self._logger = logger
        self._timer: Timer | None = None
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Takes the first sample in a minute, and further ones from then on."""
        self._wait(LEAST_PAUSE_NS)

    def stop(self) -> None:
        """Stops taking samples."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looking is not None:
            self._looking.cancel()

    def _wait(self, pause_ns: int) -> None:
        self._timer = self._clock.call_at(self._clock.now_ns() + pause_ns, self._begin_look)

    def _begin_look(self) -> None:
        self._looking = asyncio.create_task(self._look_around(), name="usage-samples")

    async def _look_around(self) -> None:
        rows: list[UsageSample] = []
        try:
            now_ns = self._clock.now_ns()
            for views in list(self._partitions()):
                found = await gather_items(views.queues())
                rows += [_sample_of(views.name, view, now_ns) for view in found if _is_in_use(view)]
            self._keep(rows)
        except Exception as error:
            self._logger.error("the use of queues was not looked at", exc_info=error)
        self._wait(max(LEAST_PAUSE_NS, len(rows) * NS_PER_ROW))


def _is_in_use(view: QueueView) -> bool:
    return not view.parent or not (view.used.is_zero() and view.pending.is_zero())


def _sample_of(partition: str, view: QueueView, now_ns: int) -> UsageSample:
    return UsageSample(
        now_ns,
        partition,
        view.path,
        view.running_applications,
        _write_amounts(view.used),
        _write_amounts(view.pending),
        _write_amounts(view.guaranteed),
        _write_amounts(view.max),
    )


def _write_amounts(amounts: Resources | None) -> str:
    shown = {} if amounts is None else {name: clamp_int64(amount) for name, amount in amounts.as_dict().items()}
    return orjson.dumps(shown, option=orjson.OPT_SORT_KEYS).decode()
