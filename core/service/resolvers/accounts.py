"""Resolver ``os``: accounts and groups as this machine knows them, by files or a name service (config.md 11)."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
from typing import Final

from kornel.core.service.resolvers.source import Unresolved

MOST_GROUPS: Final = 65_536
"""The most groups asked for, so that a system which never gives a number is not asked again for ever."""


class SystemAccounts:
    """Looks up the groups of the accounts of this machine: the primary group first, then the others. A group without a
    name is given as its number."""

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Returns the groups of *user*. Raises :class:`Unresolved`."""
        try:
            primary = pwd.getpwnam(user).pw_gid
            numbers = _group_numbers(user, primary)
        except KeyError:
            raise Unresolved(f"this machine has no account {user!r}") from None
        except OSError as error:
            raise Unresolved(f"this machine's accounts cannot be read: {error.strerror}") from error
        return tuple(dict.fromkeys(_group_name(number) for number in (primary, *numbers)))


def _group_numbers(user: str, primary: int) -> list[int]:
    """Returns the result of getgrouplist(3), called through ctypes.

    ``os.getgrouplist`` makes every other thread wait for a slow name service.
    """
    library = ctypes.CDLL(None, use_errno=True)
    room = 64
    while room <= MOST_GROUPS:
        numbers = (ctypes.c_uint32 * room)()
        count = ctypes.c_int(room)
        if library.getgrouplist(os.fsencode(user), ctypes.c_uint32(primary), numbers, ctypes.byref(count)) >= 0:
            return list(numbers[: count.value])
        room = max(2 * room, count.value)
    raise Unresolved(f"{user!r} has more than {MOST_GROUPS} groups")


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
