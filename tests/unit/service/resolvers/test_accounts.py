"""Resolver os against the accounts of the machine the tests run on: config.md 11."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd

import pytest

from kornel.core.service.resolvers import accounts
from kornel.core.service.resolvers.accounts import SystemAccounts
from kornel.core.service.resolvers.source import Unresolved


@pytest.mark.parametrize("account", pwd.getpwall(), ids=lambda account: account.pw_name)
def test_every_account(account: pwd.struct_passwd) -> None:
    """The primary group comes first, each group once; all are those the system itself tells."""
    found = SystemAccounts().groups_of(account.pw_name)
    numbers = set(os.getgrouplist(account.pw_name, account.pw_gid))
    known = {group.gr_gid: group.gr_name for group in grp.getgrall()}
    assert found[0] == known.get(account.pw_gid, str(account.pw_gid))
    assert sorted(found) == sorted(known.get(number, str(number)) for number in numbers)


def test_group_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that the system has no name for are kept as text."""
    monkeypatch.setattr(accounts, "_group_numbers", lambda user, primary: [primary, 4_000_000_123])
    assert SystemAccounts().groups_of("root") == (grp.getgrgid(pwd.getpwnam("root").pw_gid).gr_name, "4000000123")


def test_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups than expected are asked for again with more room."""
    all_of_them = list(range(1_000, 1_200))

    def getgrouplist(_user: bytes, _primary: object, numbers: ctypes.Array[ctypes.c_uint32], count: object) -> int:
        room = ctypes.cast(count, ctypes.POINTER(ctypes.c_int))  # type: ignore[arg-type]
        enough = room[0] >= len(all_of_them)
        room[0] = len(all_of_them)
        if enough:
            numbers[: len(all_of_them)] = all_of_them  # type: ignore[call-overload]
        return room[0] if enough else -1

    class Library:
        def __init__(self) -> None:
            self.getgrouplist = getgrouplist

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library())
    monkeypatch.setattr(ctypes, "byref", ctypes.pointer)
    assert accounts._group_numbers("root", 0) == all_of_them


def test_unknown_user() -> None:
    """Nobody is made up: the application is to be rejected with the reason."""
    with pytest.raises(Unresolved, match="no account 'no-such-user-here'"):
        SystemAccounts().groups_of("no-such-user-here")
