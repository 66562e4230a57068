"""A rollback, and why it holds: a text that was brought before it says nothing new, so it does not undo it.

A shim sends its configuration whenever it registers, and a file is read again whenever somebody asks for that. Neither
means that anybody has changed their mind since the rollback. A text that was not brought before does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Fate(Enum):
    """The ways in which a text that arrives is handled."""

    APPLIED = "applied"
    """No rollback holds."""
    KEPT_OUT = "kept out"
    """The text was there before the rollback, which goes on."""
    ENDS_ROLLBACK = "ends the rollback"
    """The text is a new one."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """A rollback that holds.

    version    number of the version that was rolled back to, whose text is ``text``
    rm_id      manager whose configuration it is; that of another one ends it
    principal  who rolled back, at ``at_ns``
    brought    texts that were brought before it, by every way
    kept_out   how often one of them came since and was not applied
    """

    version: int
    text: str
    rm_id: str
    at_ns: int
    principal: str
    brought: frozenset[str]
    kept_out: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a text that comes while a rollback may hold. ``text``: what is to be applied. ``rollback``: what
    holds afterwards. ``note``: what to say; empty: nothing."""

    fate: Fate
    text: str
    rollback: Rollback | None
    note: str = ""


def judge_text(rollback: Rollback | None, text: str, rm_id: str) -> Verdict:
    """Returns how to handle *text* for manager *rm_id* while *rollback* holds."""
    if rollback is None:
        return Verdict(Fate.APPLIED, text, None)
    named = f"the rollback to version {rollback.version} by {rollback.principal}"
    if rm_id != rollback.rm_id:
        return Verdict(Fate.ENDS_ROLLBACK, text, None, f"{named} ended: it was for resource manager {rollback.rm_id!r}")
    if text == rollback.text:
        # Two replicas may bring two texts in turns: the one that is in force anyway must not let the other one in.
        return Verdict(Fate.KEPT_OUT, text, rollback)
    if text not in rollback.brought:
        note = f"{named} ended: the text that came is another one than those brought before"
        return Verdict(Fate.ENDS_ROLLBACK, text, None, note)
    note = f"{named} holds: the text that came was brought before it and is not applied"
    return Verdict(Fate.KEPT_OUT, rollback.text, replace(rollback, kept_out=rollback.kept_out + 1), note)
