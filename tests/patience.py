"""Says how long a test waits for what is certain to come: a limit that only a broken program reaches."""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 120.0
