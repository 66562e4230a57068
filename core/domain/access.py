"""Defines access lists: who may submit to a queue or administer it (config.md 9)."""

from __future__ import annotations

from collections.abc import Sequence
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

    def grants(self, user: str, groups: Sequence[str]) -> bool:
        """Tells whether *user*, who belongs to *groups*, is on the list. Case matters."""
        return self.everybody or user in self.users or any(group in self.groups for group in groups)


NOBODY: Final = AccessList()
