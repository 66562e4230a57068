"""Checks of a shim, and their findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kornel.conformance.outcome import Result, Verdict


@dataclass(frozen=True, slots=True)
class Check:
    """One rule for shims.

    needs  the actions that a shim must perform for the check to have a result
    """

    id: str
    group: str
    title: str
    rule: str
    needs: str = "the shim never came that far"


_RUNNING: Final = "the shim had nothing running"
_GANG: Final = "the shim uses no placeholders"
_DEPENDENT: Final = "the shim was not asked about two asks that depend on placements, or awaits none itself"
_RECOVERY: Final = "the shim ended when told to register again, and came back as a new program"

ALL_CHECKS: Final = (
    Check("S1", "start", "registers before it opens a stream", "protocol.md 12"),
    Check("S2", "start", "names one rmID, the registered one, in every request", "protocol.md 1.1"),
    Check("S3", "start", "opens the three streams", "protocol.md 1.1"),
    Check(
        "S4", "order", "reports an allocation only once its node is accepted", "protocol.md 15",
        "the shim reported no allocation of its own",
    ),
    Check(
        "S5", "order", "asks only for accepted applications", "protocol.md 15", "the shim asked for nothing"
    ),
    Check("S6", "start", "sends no message above 64 MiB", "protocol.md 1.1"),
    Check("S7", "confirm", "confirms the release of a victim with PREEMPTED_BY_SCHEDULER",
          "protocol.md 10.3", _RUNNING),
    Check("S8", "confirm", "confirms the release of a placeholder that waited too long with TIMEOUT",
          "protocol.md 10.3", _GANG),
    Check("S9", "confirm", "confirms the release of a replaced placeholder with PLACEHOLDER_REPLACED",
          "protocol.md 10.3", _GANG),
    Check("S10", "tolerate", "takes the same new twice", "protocol.md 12", _RUNNING),
    Check("S11", "tolerate", "takes the same released twice", "protocol.md 10.3", _RUNNING),
    Check("S12", "tolerate", "ignores unknown fields", "protocol.md 17"),
    Check("S13", "tolerate", "lives with an unknown termination type", "protocol.md 3.6", _RUNNING),
    Check("S14", "tolerate", "lives with an unknown application state", "protocol.md 11",
          "the shim added no application"),
    Check("S15", "contact", "opens broken streams again", "protocol.md 1.1"),
    Check("S16", "contact", "connects again after a broken connection", "protocol.md 1.1"),
    Check("S17", "contact", "registers again only when told to", "protocol.md 1.1"),
    Check("S18", "recover", "registers again when told to", "protocol.md 5.2"),
    Check("S19", "recover", "reports nodes and applications anew", "protocol.md 5.2", _RECOVERY),
    Check("S20", "recover", "keeps the order of recovery", "protocol.md 12", _RECOVERY),
    Check("S21", "recover", "reports what runs with the node it runs on", "protocol.md 12", _RECOVERY),
    Check("S22", "refuse", "survives the refusal of a node", "protocol.md 7", "the shim created no node"),
    Check("S23", "refuse", "survives the refusal of an application", "protocol.md 6.2",
          "the shim added no application"),
    Check("S24", "refuse", "survives the refusal of an ask", "protocol.md 8.1", "the shim asked for nothing"),
    Check("S25", "end", "half-closes its streams, or ends with status 0, on SIGTERM", "protocol.md 1.1"),
    Check("S26", "start", "creates a node, adds an application, asks for room, and answers what it wants to be asked",
          "protocol.md 12"),
    Check("S27", "contact", "stays away when another program has its place", "protocol.md 5.1"),
    Check("S28", "contact", "confirms once more what was lost with a core that was killed", "protocol.md 12", _RUNNING),
    Check("S29", "recover", "reports what runs with the devices that it was given", "protocol.md 12",
          "the shim asked for no devices, or did not report again what ran with some"),
    Check("S30", "confirm", "confirms an end once", "protocol.md 10.3", "the shim confirmed nothing"),
    Check("S31", "recover", "reports what runs with its size", "protocol.md 12", _RECOVERY),
    Check("S32", "recover", "reports as ended what has ended, and nothing else", "protocol.md 12",
          "nothing had ended before the shim registered again"),
    Check("S33", "contact", "claims to have received no more than it was sent", "protocol.md 12",
          "the shim does not say what it has received"),
    Check("S34", "questions", "judges a dependent ask after the placement before it", "protocol.md 13", _DEPENDENT),
    Check("S35", "questions", "calls an ask dependent if a rule of its own or of another ask matches", "protocol.md 13",
          _DEPENDENT),
)  # fmt: skip


class Findings:
    """The findings of a session, or of all of them, by check ID. Only the first violation of a check is reported, with
    its session."""

    def __init__(self, session: str = "") -> None:
        self._session = session
        self._kept: dict[str, str] = {}
        self._broken: dict[str, str] = {}

    def mark_kept(self, *checks: str, seen: str = "") -> None:
        """Note that the shim could have broken these checks and did not."""
        for check in checks:
            self._kept[check] = seen or self._kept.get(check, "")

    def mark_broken(self, check: str, how: str) -> None:
        """Note that the shim broke *check*."""
        self._broken.setdefault(check, f"in session {self._session}: {how}")

    def add(self, other: Findings) -> None:
        """Add the findings of *other*."""
        self._kept |= other._kept
        self._broken = other._broken | self._broken

    def is_broken(self, check: str) -> bool:
        """Tells whether *check* was broken."""
        return check in self._broken

    def make_result(self, check: Check, took_s: float = 0.0) -> Result:
        """Returns the result of *check* by the findings so far."""
        if (how := self._broken.get(check.id)) is not None:
            return Result(check, Verdict.FAIL, how, took_s)
        if check.id in self._kept:
            return Result(check, Verdict.PASS, self._kept[check.id], took_s)
        return Result(check, Verdict.UNSEEN, check.needs, took_s, tried=False)


def select_checks(ids: Iterable[str] = ()) -> tuple[Check, ...]:
    """Returns the checks with these IDs, or all checks if none is given. Raises ValueError for an unknown one."""
    wanted = {each.upper() for each in ids}
    if unknown := wanted - {check.id for check in ALL_CHECKS}:
        raise ValueError(f"there is no check {', '.join(sorted(unknown))}")
    return tuple(check for check in ALL_CHECKS if not wanted or check.id in wanted)
