"""A judge of all messages of a shim at the time of their arrival."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kornel.conformance.messages import GIVEN_TAG, read_amounts
from kornel.conformance.shim.books import Books, Running
from kornel.conformance.shim.checks import Findings
from kornel.conformance.shim.lines import Kind, Request
from kornel.conformance.shim.sender import device_tags
from kornel.si.v1 import si_pb2 as si

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024


class Judge:
    """Judges and records the messages of one RM."""

    def __init__(self, findings: Findings) -> None:
        self.rm = ""
        self.registrations = 0
        self.wants_registration = False
        """Set when the RM was asked to register again."""
        self.to_recover: dict[str, Running] = {}
        """The allocations that ran when the RM was asked to register again, and have not been reported or released
        since."""
        self.ended: set[str] = set()
        """The keys of the allocations that had ended when the RM was asked to register again, and were neither asked
        for nor placed since."""
        self.reported_again = 0
        """The number of allocations that were to be recovered and were reported with a node."""
        self._confirmed: Final[Counter[str]] = Counter()
        """The number of confirmations of the end of each key."""
        self._findings = findings

    def judge_registration(self, rm: str) -> None:
        """Judge a registration."""
        self._findings.mark_kept("S1")
        if not rm:
            self._findings.mark_broken("S2", "registered without rmID")
        elif self.rm not in ("", rm):
            self._findings.mark_broken("S2", f"registered as {rm!r} after {self.rm!r}")
        if self.registrations and not self.wants_registration:
            self._findings.mark_broken("S17", "registered again although nobody had told it to")
        self.rm = rm
        self.registrations += 1
        self.wants_registration = False

    def admits(self, kind: Kind, request: Request) -> bool:
        """Tells whether the RM may send a request on a stream."""
        self._findings.mark_kept("S6")
        if (size := request.ByteSize()) > MAX_MESSAGE_BYTES:
            self._findings.mark_broken("S6", f"a message of {size:,} bytes on {kind}")
        if not self.registrations:
            self._findings.mark_broken("S1", f"{kind} was opened before the registration")
            return False
        if self.wants_registration:
            return False
        self._findings.mark_kept("S2")
        if request.rmID != self.rm:
            self._findings.mark_broken("S2", f"a request on {kind} names {request.rmID!r}, registered is {self.rm!r}")
        return True

    def admits_subscription(self, rm: str) -> bool:
        """Tells whether the RM may subscribe to questions."""
        if not self.registrations or self.wants_registration:
            return False
        if rm != self.rm:
            self._findings.mark_broken("S2", f"a subscription names {rm!r}, registered is {self.rm!r}")
        return rm == self.rm

    def judge_order(self, key: str, after: str, *, in_place: bool) -> None:
        """Judge the answer to a question about *key*, which had to wait for the placement of *after*. *in_place*: that
        was announced to the shim, or acknowledged by it."""
        self._findings.mark_kept("S34")
        if not in_place:
            self._findings.mark_broken("S34", f"{key} was judged before the shim was told of {after}, which was placed")

    def judge_report(self, allocation: si.Allocation, books: Books) -> None:
        """Judge an allocation with a node."""
        self._findings.mark_kept("S4")
        key, name = allocation.allocationKey, allocation.nodeID
        node = books.nodes.get(name)
        if node is None or not node.accepted:
            self._findings.mark_broken(
                self._or_recovery("S4"), f"{key} is reported on {name}, which is not accepted yet"
            )
        if key in self.ended:
            self._findings.mark_broken("S32", f"{key} has ended and is reported on {name}")
        ran = self.to_recover.pop(key, None)
        if ran is None:
            return
        self.reported_again += 1
        if ran.node != name:
            self._findings.mark_broken("S21", f"{key} ran on {ran.node} and is reported on {name}")
        self._judge_size(ran, allocation)
        if ran.devices:
            self._judge_devices(ran, allocation)

    def _judge_size(self, ran: Running, allocation: si.Allocation) -> None:
        """Judge the size of an allocation that is reported again."""
        self._findings.mark_kept("S31")
        size, said = read_amounts(ran.allocation.resourcePerAlloc), read_amounts(allocation.resourcePerAlloc)
        if any(size.get(kind, 0) != said.get(kind, 0) for kind in size.keys() | said.keys()):
            self._findings.mark_broken("S31", f"{ran.key} ran with {size} and is reported with {said}")

    def _judge_devices(self, ran: Running, allocation: si.Allocation) -> None:
        """Judge the devices of an allocation that is reported again after it ran with some."""
        self._findings.mark_kept("S29")
        given = device_tags(ran)
        said = {key: value for key, value in allocation.allocationTags.items() if key in given}
        if said != given:
            self._findings.mark_broken("S29", f"{ran.key} ran with {given} and is reported with {said or 'none of it'}")

    def judge_application(self, allocation: si.Allocation, books: Books) -> None:
        """Judge the application of an ask or allocation."""
        self._findings.mark_kept("S5")
        key, app = allocation.allocationKey, allocation.applicationID
        if not books.apps.get(app):
            self._findings.mark_broken(
                self._or_recovery("S5"), f"{key} was sent for application {app}, which is not accepted"
            )

    def judge_ask(self, allocation: si.Allocation, books: Books) -> None:
        """Judge an allocation without a node."""
        key = allocation.allocationKey
        self.ended.discard(key)
        if (ran := self.to_recover.get(key)) is not None:
            self._findings.mark_broken("S21", f"{key} runs on {ran.node} and is asked for again")
        elif self.to_recover and books.can_schedule():
            waiting = ", ".join(sorted(self.to_recover))
            self._findings.mark_broken("S20", f"{key} is asked for while nodes are open and {waiting} is not reported")

    def judge_confirmation(self, key: str, demanded: int) -> None:
        """Judge a confirmation of the end of *key*, for which was asked *demanded* times."""
        self._findings.mark_kept("S30")
        self._confirmed[key] += 1
        if self._confirmed[key] > demanded:
            count = self._confirmed[key]
            self._findings.mark_broken("S30", f"the end of {key} was asked for {demanded} times, and confirmed {count}")

    def judge_claim(self, kind: Kind, received: str, sent: int) -> None:
        """Judge what the RM says that it has *received* on streams of *kind*, on which *sent* entries were sent."""
        self._findings.mark_kept("S33")
        if not received.isdecimal():
            self._findings.mark_broken("S33", f"{kind} is opened with {received!r}, which is no number of entries")
        elif int(received) > sent:
            self._findings.mark_broken("S33", f"{kind} is opened with {received} entries received, of {sent} sent")

    def _or_recovery(self, check: str) -> str:
        return check if self.registrations == 1 else "S20"


def named_devices(allocation: si.Allocation) -> tuple[str, ...]:
    """Returns the IDs of the devices that *allocation* names."""
    return tuple(filter(None, allocation.allocationTags.get(GIVEN_TAG, "").split(",")))
