"""What the engine under test can do. A feature is switched on here once it exists; its rules are written already."""

from __future__ import annotations

from typing import Final

CALLBACKS: Final = True
"""AttachCallbacks, DetachCallbacks and AnswerCallbacks are served (protocol.md 13)."""

COUNTS: Final = True
"""G2 asks for several allocations are taken; the view does not follow them yet, so the rules then leave them out."""

GANGS: Final = True
"""Placeholders are replaced by real asks of their task group and time out (scheduling.md 10)."""

LIMITS: Final = True
"""User limits and max applications hold asks back (scheduling.md 6, 12)."""
