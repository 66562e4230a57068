"""A group of commands that shows wrong arguments safely, because they may contain names that another person chose.

An error message of typer contains the wrong argument unchanged, including escape sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from kornel.shared.visible import write_visibly


class VisibleCommands(TyperGroup):
    """A group of commands whose error messages write arguments visibly."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parses the arguments of the group itself."""
        with _visible_complaints():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the chosen command, which parses its own arguments."""
        with _visible_complaints():
            return super().invoke(*args, **kwargs)


@contextmanager
def _visible_complaints() -> Iterator[None]:
    """Writes the message of a parser's error visibly. The list of commands in it is our own text, and keeps its
    lines."""
    try:
        yield
    except typer.TyperException as error:
        if type(error).__name__ != "NoArgsIsHelpError":
            visible = write_visibly(error.format_message())
            error.format_message = lambda: visible  # type: ignore[method-assign]
        raise
