"""Asks the terminal that standard output goes to how wide and high it is, and which characters it can show."""

from __future__ import annotations

import shutil
import sys

from kornel.cli.text.quantities import Strokes, strokes_for


def screen_columns() -> int | None:
    """Returns how many columns the terminal has; ``None`` if the output goes to a file or a pipe, where a line may be
    of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def screen_lines() -> int | None:
    """Returns how many lines the terminal has; ``None`` if the output goes to a file or a pipe."""
    return shutil.get_terminal_size().lines if sys.stdout.isatty() else None


def terminal_strokes() -> Strokes:
    """Returns the strokes that the terminal, or the file that standard output goes to, can show."""
    return strokes_for(sys.stdout.encoding)
