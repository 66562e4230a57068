"""Connects the engine with the callback streams. Only the task that owns the engine uses it.

The board knows which stream is asked, and the link informs the engine of every change. So it does not matter how a
stream ended: the next turn of the task finds out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kornel.core.domain.commands import (
    AnswerCallbacks,
    AttachCallbacks,
    Command,
    CommandRefused,
    DetachCallbacks,
    Fault,
)
from kornel.core.service.callbacks.callback_board import CallbackBoard, CallbackStream
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.runner.engine_port import EnginePort
from kornel.core.service.wire.callback_wire import Subscription
from kornel.core.service.wire.status_codes import EngineFault

_TOLD_BEFORE: Final = AttachCallbacks("")
"""Stands for the unknown subscription that an engine has from a former core."""


class CallbackLink:
    """The link between the engine and callback streams.

    ``apply`` applies a command and hands over its effects; raises ``CommandRefused`` or :class:`EngineFault`.
    """

    def __init__(
        self, engine: EnginePort, board: CallbackBoard, apply: Callable[[Command], None], metrics: ServiceMetrics
    ) -> None:
        self._engine = engine
        self._board = board
        self._apply = apply
        self._metrics = metrics
        self._told: AttachCallbacks | None = None
        """The last subscription that was applied to the engine."""

    def follow_engine(self) -> None:
        """Makes the next turn inform the engine which stream is asked, whatever it knows from a former core."""
        self._told = _TOLD_BEFORE

    def attach_stream(self, stream: CallbackStream, subscription: Subscription) -> None:
        """Attaches *stream*, which is asked from now on."""
        if stream.ending:
            return
        rm_id = subscription.attachment.rm_id
        if not rm_id or rm_id != self._engine.rm_id:
            self._metrics.commands_refused += 1
            unknown = f"AttachRequest: resource manager {rm_id!r} is not registered"
            self._board.end_stream(stream, CommandRefused(Fault.UNKNOWN_MANAGER, unknown))
            return
        self._board.attach_stream(stream, subscription)
        self.follow_board()

    def pass_answers(self, stream: CallbackStream, command: AnswerCallbacks) -> None:
        """Passes the answers of *stream* to the engine."""
        if stream.ending:
            return
        self._board.take_answers(command)
        try:
            self._apply(command)
        except (CommandRefused, EngineFault) as error:
            self._metrics.commands_refused += 1
            self._board.end_stream(stream, error)

    def detach_stream(self, stream: CallbackStream, error: Exception | None) -> None:
        """Ends *stream*, with *error* or without one."""
        self._board.end_stream(stream, error)
        self.follow_board()

    def follow_board(self) -> None:
        """Informs the engine of the subscription that is asked now, if it has changed.

        While no manager is registered, nothing is done, because the next manager does not inherit a subscription.
        """
        wanted = self._board.attachment
        rm_id = self._engine.rm_id
        if wanted is self._told or not rm_id:
            return
        self._told = wanted
        try:
            self._apply(DetachCallbacks(rm_id) if wanted is None else wanted)
        except (CommandRefused, EngineFault) as error:
            self._metrics.commands_refused += 1
            self._board.finish_all(error)
