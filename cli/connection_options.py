"""Moves options about the connection to a core, which users may write before or after the command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

OF_THE_WHOLE: Final = frozenset({"--ca", "--cert", "--key", "--token-file", "--server-name"})
"""Options that ``kornel`` itself takes."""
OF_A_COMMAND: Final = frozenset({"--core", "--grpc"})
"""Options that each command which asks a core takes."""


def move_connection_options(arguments: Sequence[str]) -> list[str]:
    """Returns *arguments* with every option about the connection moved to where it is read: options of ``kornel``
    before the command, the address of the core after it. Arguments after ``--`` stay where they are."""
    front: list[str] = []
    command: list[str] = []
    address: list[str] = []
    rest = list(arguments)
    named = False
    while rest and rest[0] != "--":
        option, has_value, _ = rest[0].partition("=")
        length = 1 if has_value else 2
        if option in OF_THE_WHOLE and len(rest) >= length:
            front += rest[:length]
        elif option in OF_A_COMMAND and not named and len(rest) >= length:
            address += rest[:length]
        else:
            length = 1
            named = named or not option.startswith("-")
            command += rest[:1]
        rest = rest[length:]
    return [*front, *command, *address, *rest] if named else [*front, *address, *command, *rest]
