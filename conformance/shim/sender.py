"""Messages of the scripted core, and the behaviour that a session chooses for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import Message

from kornel.conformance.messages import GIVEN_TAG
from kornel.conformance.shim.books import Running
from kornel.conformance.shim.lines import Kind, Lines
from kornel.si.v1 import si_pb2 as si

DEMANDS: Final = (si.TIMEOUT, si.PREEMPTED_BY_SCHEDULER, si.PLACEHOLDER_REPLACED)
"""The termination types with which the core asks for an end that the shim has to confirm."""

Sent = TypeVar("Sent", bound=Message)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviour of the core in a session.

    accept_after_s  how long nodes and applications wait for their acceptance, so that a shim that does not wait is
    detected
    refuse          the kinds whose first entry is refused
    extra           bytes appended to every message: unknown fields
    hold_gang       real asks that match a placeholder wait
    hold_asks       all asks wait for the script of the session
    """

    accept_after_s: float = 0.3
    refuse: frozenset[Kind] = frozenset()
    extra: bytes = b""
    hold_gang: bool = False
    hold_asks: bool = False


@dataclass(slots=True)
class Sender:
    """The sender of messages to RM ``rm``."""

    lines: Final[Lines]
    manners: Final[Behaviour]
    rm: str = ""
    states: dict[str, str] = field(default_factory=dict)
    """The last state sent for each application."""
    demanded: Counter[str] = field(default_factory=Counter)
    """The number of times that each key was asked to end."""

    def demand_release(self, run: Running, termination: int) -> None:
        """Ask for the release of an allocation, or confirm it if *termination* is STOPPED_BY_RM."""
        self.demanded[run.key] += termination in DEMANDS
        release = si.AllocationRelease(
            partitionName=f"[{self.rm}]default",
            applicationID=run.app,
            allocationKey=run.key,
            terminationType=si.TerminationType.ValueType(termination),
            message="on behalf of the conformance kit",
        )
        self.send_message(Kind.ALLOCATION, si.AllocationResponse(released=[release]))

    def announce_allocation(self, run: Running) -> None:
        """Send ``new`` for *run*."""
        placed = si.Allocation(
            allocationKey=run.key,
            allocationID=f"{run.key}-0",
            applicationID=run.app,
            nodeID=run.node,
            resourcePerAlloc=run.allocation.resourcePerAlloc,
            taskGroupName=run.allocation.taskGroupName,
            placeholder=run.allocation.placeholder,
            originator=run.allocation.originator,
            preemptionPolicy=run.allocation.preemptionPolicy,
            allocationTags=device_tags(run),
        )
        self.send_message(Kind.ALLOCATION, si.AllocationResponse(new=[placed]))

    def send_state(self, app: str, state: str) -> None:
        """Send that *app* has entered *state*."""
        self.states[app] = state
        change = si.UpdatedApplication(applicationID=app, state=state, message="runApplication")
        self.send_message(Kind.APPLICATION, si.ApplicationResponse(updated=[change]))

    def refuse_ask(self, key: str, app: str, reason: str, *, old: bool) -> None:
        """Refuse an ask, in the list that the shim's generation reads."""
        if old:
            refused = si.RejectedAllocationAsk(allocationKey=key, applicationID=app, reason=reason)
            self.send_message(Kind.ALLOCATION, si.AllocationResponse(rejected=[refused]))
        else:
            newer = si.RejectedAllocation(allocationKey=key, applicationID=app, reason=reason)
            self.send_message(Kind.ALLOCATION, si.AllocationResponse(rejectedAllocations=[newer]))

    def send_message(self, kind: Kind, message: Message) -> None:
        """Send *message* on the stream of that kind."""
        self.lines.send_message(kind, self.with_extra_fields(message))

    def with_extra_fields(self, message: Sent) -> Sent:
        """Returns *message* with unknown fields."""
        if not self.manners.extra:
            return message
        return type(message).FromString(message.SerializeToString() + self.manners.extra)


def device_tags(run: Running) -> dict[str, str]:
    """Returns the tags that name the devices of *run* and repeat what it wants, or none if it has no devices."""
    if not run.devices:
        return {}
    wants = {key: value for key, value in run.allocation.allocationTags.items() if key.startswith("kornel.gpu.")}
    return wants | {GIVEN_TAG: ",".join(run.devices)}
