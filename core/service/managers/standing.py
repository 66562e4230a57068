"""Defines the standing of a core among those that share a journal: it leads, or it stands by.

A core that leads decides. A core that stands by follows the decisions of the leader, answers questions about the state,
and refers all other callers to the leader. A core with a journal of its own, or with none, always leads.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Final

import grpc
import grpc.aio

from kornel.core.service.calls.rpc import Context
from kornel.core.service.runner.journal_port import OpenGate
from kornel.core.service.wire.status_codes import LEADER_KEY, NotLeading

EPOCH_KEY: Final = "kornel-epoch"
"""The key of trailing metadata with the epoch of the core that leads and answers."""

BEHIND_KEY: Final = "kornel-behind-ms"
"""The key of trailing metadata with the age that an answer may have."""


class Role(StrEnum):
    """The standings of a core."""

    LEADER = "leader"
    STANDBY = "standby"
    """The core follows the leader, and takes over when there is none."""
    UNFIT = "unfit"
    """The core no longer follows and never leads, because its state differs from the leader's. ``problem`` says why."""


class Standing:
    """The present standing.

    shared          tells whether several cores may share the journal
    leader_address  the address of the leader; empty: there is none, or it has not stated its address
    epoch           the number of the leader's epoch
    records_behind  the number of records that the journal held at the last look and that this core has not replayed
    problem         a description of what is wrong; empty: nothing is
    """

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self.role = Role.STANDBY if shared else Role.LEADER
        self.leader_address = ""
        self.epoch = 0
        self.records_behind = 0
        self.problem = ""
        self._caught_up_s = time.monotonic()
        self.find_lease_age: Callable[[], float] = lambda: 0.0
        """Returns the seconds since the lease was last renewed, as far as this core knows."""

    @property
    def leads(self) -> bool:
        """Tells whether this core decides."""
        return self.role is Role.LEADER

    @property
    def behind_s(self) -> float:
        """The seconds for which this core may not know the decisions of the leader; 0: it leads."""
        return 0.0 if self.leads else time.monotonic() - self._caught_up_s

    def note_caught_up(self, looked_s: float) -> None:
        """Notes that everything was replayed that the journal held at *looked_s*, by the monotonic clock."""
        self.records_behind = 0
        self._caught_up_s = looked_s

    def lead(self, epoch: int, address: str) -> None:
        """Notes that this core leads from now on."""
        self.role, self.epoch, self.leader_address, self.problem = Role.LEADER, epoch, address, ""
        self.records_behind = 0

    def give_up(self, problem: str) -> None:
        """Notes that this core never leads, because of *problem*."""
        self.role, self.problem = Role.UNFIT, problem

    def check_leads(self) -> None:
        """Raises :class:`NotLeading` unless this core decides."""
        if not self.leads:
            where = f"the leader is at {self.leader_address}" if self.leader_address else "nobody leads at the moment"
            raise NotLeading(f"this core stands by: {where}", leader=self.leader_address)


class StandingInterceptor(grpc.aio.ServerInterceptor):
    """Marks the answers of a core in trailing metadata: a core that leads states its epoch; one that stands by states
    how old the answer may be and where the leader is."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """Returns the handler of the call, which marks its answer."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        answer = handler.unary_unary

        async def answer_marked(request: bytes, context: Context) -> bytes:
            response: bytes = await answer(request, context)
            context.set_trailing_metadata(self._list_marks())
            return response

        return grpc.unary_unary_rpc_method_handler(answer_marked)

    def _list_marks(self) -> tuple[tuple[str, str], ...]:
        if self._standing.leads:
            return ((EPOCH_KEY, str(self._standing.epoch)),)
        leader = self._standing.leader_address
        behind = ((BEHIND_KEY, str(round(self._standing.behind_s * 1_000))),)
        return (*behind, (LEADER_KEY, leader)) if leader else behind


class StandingGate(OpenGate):
    """The gate of a core without a journal of its own, which accepts no command unless it leads."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def check_intake(self) -> None:
        """Raises :class:`NotLeading` unless the core leads."""
        self._standing.check_leads()
