"""Options within scripts: lines at the beginning of a script that start with ``#KORNEL`` are options of ``submit``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

MARK: Final = "#KORNEL"
MOST_BYTES: Final = 256 * 1024


class BadScript(ValueError):
    """A line of options that cannot be read; the message names the line."""


def read_options(path: Path) -> list[str]:
    """Returns the words of the option lines of the script *path*, in order. If the file is no script, there are none.

    Option lines have to precede the first line that is neither empty nor a comment. Raises BadScript.
    """
    try:
        if not path.is_file():
            return []
        with path.open("rb") as file:
            head = file.read(MOST_BYTES)
    except OSError:
        return []
    if not head.startswith(b"#"):
        return []
    words: list[str] = []
    for number, line in enumerate(head.decode("utf-8", "replace").splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            break
        if text == MARK or text.startswith((f"{MARK} ", f"{MARK}\t")):
            try:
                words += shlex.split(text[len(MARK) :], comments=True)
            except ValueError as error:
                raise BadScript(f"{path}:{number}: {error}") from None
    return words
