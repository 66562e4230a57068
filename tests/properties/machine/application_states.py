"""The states an application may go through, written down from scheduling.md 11.1 once more, apart from the engine's."""

from __future__ import annotations

from typing import Final

from tests.properties.machine.view import ContractBroken

_RUN = frozenset({"runApplication"})
_COMPLETE = frozenset({"completeApplication"})
_FAIL = frozenset({"failApplication", "ResourceReservationTimeout", "PartitionRemoved"})
_RESUME = frozenset({"resumeApplication", "ResourceReservationTimeout"})

CHANGES: Final[dict[tuple[str, str], frozenset[str]]] = {
    ("New", "Accepted"): _RUN,
    ("Resuming", "Accepted"): _RUN,
    ("Accepted", "Running"): _RUN,
    ("Completing", "Running"): _RUN,
    ("Accepted", "Completing"): _COMPLETE,
    ("Running", "Completing"): _COMPLETE,
    ("Completing", "Completed"): _COMPLETE,
    ("New", "Failing"): _FAIL,
    ("Accepted", "Failing"): _FAIL,
    ("Running", "Failing"): _FAIL,
    ("Failing", "Failed"): frozenset({"failApplication", "PartitionRemoved"}),
    ("New", "Resuming"): _RESUME,
    ("Accepted", "Resuming"): _RESUME,
}
"""(from, to) with the messages that may come along (protocol.md 11). Expiry happens to those that are gone."""

ENDED: Final = frozenset({"Completed", "Failed"})
"""States in which an application is live no more."""


def check_change(application_id: str, before: str, after: str, message: str) -> None:
    """Raises unless *before* may become *after* with this *message*."""
    messages = CHANGES.get((before, after))
    if messages is None:
        raise ContractBroken("state table", f"{application_id} went from {before} to {after}")
    if message not in messages:
        raise ContractBroken("state message", f"{application_id} became {after} with {message!r}, not {set(messages)}")


def on_removal(state: str, *, allocated: bool) -> list[str]:
    """What the removal of an application reports (table in protocol.md 6.5)."""
    if state in ("Accepted", "Running"):
        return ["Completing"] if allocated else ["Completing", "Completed"]
    return ["Completed"] if state == "Completing" else []
