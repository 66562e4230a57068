"""Defaults of how much of a journal is kept, and how often snapshots are made; by themselves, as the command line needs
no database for them."""

from __future__ import annotations

from typing import Final

DEFAULT_KEEP: Final = "1d,2048"
"""The part of a journal that is kept if nothing else is said: a day, and at most 2 GiB."""

DEFAULT_SNAPSHOT_MINUTES: Final = 10.0
"""The longest time between two snapshots, if nothing else is said."""
