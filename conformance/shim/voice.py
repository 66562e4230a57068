"""What the scripted core says, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import Message
from si.v1 import si_pb2 as si

from conformance.shim.books import Running
from conformance.shim.lines import Kind, Lines

Sent = TypeVar("Sent", bound=Message)


@dataclass(frozen=True, slots=True)
class Manners:
    """How the core behaves in a session.

    accept_after_s  how long nodes and applications wait for their acceptance: whoever does not wait is found out
    refuse          the first of each kind in here is refused
    extra           bytes appended to every message: fields that nobody knows
    hold_gang       real asks that match a placeholder wait
    """

    accept_after_s: float = 0.3
    refuse: frozenset[Kind] = frozenset()
    extra: bytes = b""
    hold_gang: bool = False


@dataclass(slots=True)
class Voice:
    """Says things to RM ``rm``."""

    lines: Final[Lines]
    manners: Final[Manners]
    rm: str = ""
    states: dict[str, str] = field(default_factory=dict)
    """The state that each application was last said to be in."""

    def demand(self, run: Running, termination: int) -> None:
        """Ask for the end of an allocation, or with STOPPED_BY_RM confirm it."""
        release = si.AllocationRelease(
            partitionName=f"[{self.rm}]default",
            applicationID=run.app,
            allocationKey=run.key,
            terminationType=si.TerminationType.ValueType(termination),
            message="on behalf of the conformance kit",
        )
        self.say(Kind.ALLOCATION, si.AllocationResponse(released=[release]))

    def announce(self, run: Running) -> None:
        """Say ``new`` for *run*."""
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
        )
        self.say(Kind.ALLOCATION, si.AllocationResponse(new=[placed]))

    def update(self, app: str, state: str) -> None:
        """Say that *app* has entered *state*."""
        self.states[app] = state
        change = si.UpdatedApplication(applicationID=app, state=state, message="runApplication")
        self.say(Kind.APPLICATION, si.ApplicationResponse(updated=[change]))

    def refuse_ask(self, key: str, app: str, reason: str, *, old: bool) -> None:
        """Refuse an ask in the list that its generation reads."""
        if old:
            refused = si.RejectedAllocationAsk(allocationKey=key, applicationID=app, reason=reason)
            self.say(Kind.ALLOCATION, si.AllocationResponse(rejected=[refused]))
        else:
            newer = si.RejectedAllocation(allocationKey=key, applicationID=app, reason=reason)
            self.say(Kind.ALLOCATION, si.AllocationResponse(rejectedAllocations=[newer]))

    def say(self, kind: Kind, message: Message) -> None:
        """Send *message*."""
        self.lines.say(kind, self.dressed(message))

    def dressed(self, message: Sent) -> Sent:
        """*message* with the fields that nobody knows."""
        if not self.manners.extra:
            return message
        return type(message).FromString(message.SerializeToString() + self.manners.extra)
