"""Writes what commands print; no command writes to a terminal in another way. Names come from shims and configurations,
so they are written visibly: none of them can move the cursor, ring the bell, reverse text, or look like a line of its
own. A text of several lines is made by :mod:`kornel.cli.text`, which writes each line visibly before it joins
them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

from kornel.cli.text.screen import screen_lines
from kornel.shared.visible import write_json, write_lines, write_visibly

if TYPE_CHECKING:
    from google.protobuf.message import Message

_CLEAR: Final = "\x1b[H\x1b[2J"


def echo_line(line: object) -> None:
    """Write *line* to standard output, as one line whatever is in it."""
    typer.echo(write_visibly(str(line)))


def echo_text(text: str) -> None:
    """Write *text*, whose line breaks :mod:`kornel.cli.text` made, to standard output."""
    typer.echo("\n".join(map(write_visibly, text.split("\n"))))


def show_text(text: str) -> None:
    """Write *text* like :func:`echo_text`, or through a pager if it does not fit the terminal. ``KORNEL_PAGER`` or
    ``PAGER`` names the pager, by default ``less``; an empty value or ``cat`` means no pager.
    """
    lines = text.count("\n") + 1
    height = screen_lines()
    if height is None or lines < height or not sys.stdin.isatty() or not _write_to_pager(text):
        echo_text(text)


def _write_to_pager(text: str) -> bool:
    """Shows *text* in the pager, and tells whether there is one."""
    command = shlex.split(os.environ.get("KORNEL_PAGER", os.environ.get("PAGER", "less")))
    if not command or command == ["cat"] or shutil.which(command[0]) is None:
        return False
    # These options make less quit if everything fits, pass only colours through, and leave the text on the screen.
    environment = {"LESS": "FRX", "LESSCHARSET": "utf-8", **os.environ}
    visible = "\n".join(map(write_visibly, text.split("\n")))
    subprocess.run(command, input=visible.encode(), env=environment, check=False)
    return True


def print_error(error: str | Exception) -> None:
    """Write *error* to standard error. A message of this program is one line. A message of a core may have several; all
    but the first are indented, so that none looks like another error.
    """
    lines = [error] if isinstance(error, str) else str(error).split("\n")
    typer.echo("\n  ".join(map(write_visibly, lines)), err=True)


class VisibleGroup(TyperGroup):
    """A group of commands whose error messages write arguments visibly."""

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
    """Writes the message of a parser's error visibly. A list of commands keeps its line breaks, because it holds no
    foreign names."""
    try:
        yield
    except typer.TyperException as error:
        if type(error).__name__ != "NoArgsIsHelpError":
            visible = write_visibly(error.format_message())
            error.format_message = lambda: visible  # type: ignore[method-assign]
        raise


def ask_consent(question: str) -> bool:
    """Ask *question* at the terminal, and tell whether the answer is yes."""
    return typer.confirm(write_visibly(question), err=True)


def echo_json(document: Message | str, *, indent: int | None = 2) -> None:
    """Write *document* to standard output: a message as JSON with all its fields, or a text that is JSON already."""
    if not isinstance(document, str):
        # Imported here, because a caller that has a message has imported protobuf already, and the other commands
        # should not have to.
        from kornel.cli.text.documents import write_message  # noqa: PLC0415

        document = write_message(document, indent)
    typer.echo(write_json(document))


def echo_document(text: str) -> None:
    """Write *text*, a configuration, to standard output: unchanged into a file or a pipe, visibly in a terminal."""
    typer.echo(write_lines(text) if sys.stdout.isatty() else text, nl=not text.endswith("\n"))


def clear_screen() -> None:
    """Clear the screen if standard output is a terminal."""
    if sys.stdout.isatty():
        typer.echo(_CLEAR, nl=False)
