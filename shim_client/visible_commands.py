"""A group of commands that shows wrong arguments safely: they may have come from a name that somebody else chose.

What typer says of an argument it cannot use holds that argument as it is, escape sequences included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from kornel.shim_client.visible import write_visibly


class VisibleCommands(TyperGroup):
    """A group of commands that writes arguments visibly where it complains about them."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parses the arguments of the group itself."""
        with _visible_complaints():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the command that was named, which parses its own arguments."""
        with _visible_complaints():
            return super().invoke(*args, **kwargs)


@contextmanager
def _visible_complaints() -> Iterator[None]:
    """Makes an error of the parser visible to whoever prints it. The list of commands is ours, and has lines."""
    try:
        yield
    except typer.TyperException as error:
        if type(error).__name__ != "NoArgsIsHelpError":
            visible = write_visibly(error.format_message())
            error.format_message = lambda: visible  # type: ignore[method-assign]
        raise
