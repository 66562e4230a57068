"""The defaults for the part of a journal that is kept and for the times of snapshots. They are in a separate module, so
that the command line can import them without the database."""

from __future__ import annotations

from typing import Final

DEFAULT_KEEP: Final = "1d,2048"
"""The part of a journal that is kept by default: a day, and at most 2 GiB."""

DEFAULT_SNAPSHOT_MINUTES: Final = 10.0
"""The longest time between two snapshots by default."""
