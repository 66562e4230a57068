"""Defines access lists: who may submit to a queue or administer it (config.md 9)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class AccessList:
    """The users and groups with access, to which ancestors may add more. ``text``: as written, without outer blanks."""

    text: str = ""
    everybody: bool = False
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def nobody(self) -> bool:
        """Tells whether the list grants access to nobody."""
        return not (self.everybody or self.users or self.groups)

    def grants(self, user: str, groups: Iterable[str]) -> bool:
        """Tells whether *user*, who belongs to *groups*, is on the list. Case matters."""
        if self.everybody or user in self.users:
            return True
        # Both may have thousands of names.
        return bool(self.groups) and not frozenset(groups).isdisjoint(self.groups)


NOBODY: Final = AccessList()
