"""Builds a group of commands that imports the module of a command when the command is used.

Importing all of them would cost each call several tenths of a second, which people notice, and scripts and tests pay
hundreds of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple

import typer.main

from kornel.cli.terminal import VisibleGroup

COMMANDS_PACKAGE: Final = "kornel.cli.commands"
OF_THE_CORE: Final = "kornel.core.commands"
"""The package of the commands that need no running core. They are found by this name when they are used, so that
nothing here imports the core."""
SIMULATOR: Final = "kornel.simulate"
"""The package of the command that simulates, found in the same way."""


class CommandSource(NamedTuple):
    """A command is *attribute* of *module*: a function, or a :class:`typer.Typer` with several commands. A module whose
    name begins with a dot is in :data:`COMMANDS_PACKAGE`.

    *panel*: the heading under which the help lists it; empty: the default heading.
    """

    module: str
    attribute: str
    panel: str = ""

    def load(self) -> Any:
        """Returns the command."""
        return getattr(import_module(self.module, COMMANDS_PACKAGE), self.attribute)


class GroupOnDemand(VisibleGroup):
    """A group whose commands are listed in ``sources``, by name."""

    sources: ClassVar[Mapping[str, CommandSource]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = CommandsOnDemand(self.sources, self.commands)


class CommandsOnDemand(MutableMapping[str, Any]):
    """The commands of a group by name, first those of *sources* and then *made* ones.

    A command is built when it is read; listing the names imports nothing.
    """

    def __init__(self, sources: Mapping[str, CommandSource], made: Mapping[str, Any]) -> None:
        self._sources: Final = sources
        self._made: Final = dict(made)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._build_command(name)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name}: a command is taken out of the table of its group")

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._sources, *self._made)))

    def __len__(self) -> int:
        return len(self._sources.keys() | self._made.keys())

    def _build_command(self, name: str) -> Any:
        """Returns the command, built as if it had been added to the group in the usual way."""
        source = self._sources[name]
        found = source.load()
        holder = typer.Typer()
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=name, rich_help_panel=source.panel or None)
        else:
            holder.command(name, rich_help_panel=source.panel or None)(found)
        return typer.main.get_group(holder).commands[name]
