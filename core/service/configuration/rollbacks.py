"""Defines rollbacks of the configuration, which texts from before the rollback do not undo.

A shim sends its configuration whenever it registers, and a file is read again whenever an administrator asks for that.
Neither ends the rollback, because neither shows that somebody wants another configuration; only a new text shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Fate(Enum):
    """The ways in which a text that arrives is handled."""

    APPLIED = "applied"
    """No rollback is in force, so the text is applied."""
    KEPT_OUT = "kept out"
    """The text was there before the rollback, which stays in force."""
    ENDS_ROLLBACK = "ends the rollback"
    """The text is new, so it ends the rollback."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """A rollback in force.

    version    the number of the version that was rolled back to, whose text is ``text``
    rm_id      the manager whose configuration it is; a text of another manager ends it
    principal  the caller that rolled back, at ``at_ns``
    brought    the texts that arrived before it, from any origin
    kept_out   the number of times that one of them has arrived since then and was not applied
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
    """The verdict on a text that arrives. ``text``: the text to be applied. ``rollback``: the rollback in force
    afterwards. ``note``: a sentence to be recorded; empty: none."""

    fate: Fate
    text: str
    rollback: Rollback | None
    note: str = ""


def judge_text(rollback: Rollback | None, text: str, rm_id: str) -> Verdict:
    """Returns how to handle *text* for manager *rm_id* while *rollback* is in force."""
    if rollback is None:
        return Verdict(Fate.APPLIED, text, None)
    named = f"the rollback to version {rollback.version} by {rollback.principal}"
    if rm_id != rollback.rm_id:
        return Verdict(Fate.ENDS_ROLLBACK, text, None, f"{named} ended: it was for resource manager {rollback.rm_id!r}")
    if text == rollback.text:
        # Two replicas may send two texts in turns. The one that equals the text in force must not end the rollback,
        # because then the other one would be applied.
        return Verdict(Fate.KEPT_OUT, text, rollback)
    if text not in rollback.brought:
        note = f"{named} ended: the text that came is another one than those brought before"
        return Verdict(Fate.ENDS_ROLLBACK, text, None, note)
    note = f"{named} holds: the text that came was brought before it and is not applied"
    return Verdict(Fate.KEPT_OUT, rollback.text, replace(rollback, kept_out=rollback.kept_out + 1), note)
