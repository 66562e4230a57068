"""Sessions of shims: who is listened to, whatever happened before (protocol.md 1.1, 5.1)."""

from __future__ import annotations

import pytest

from kornel.core.service.clock import ManualClock
from kornel.core.service.sessions import Session, Sessions
from kornel.core.service.status_codes import Superseded

OLDER = Session("older", "127.0.0.1", named=True)
YOUNGER = Session("younger", "127.0.0.1", named=True)


def test_a_superseded_name_is_refused_from_whatever_address_it_comes() -> None:
    sessions = Sessions(ManualClock())
    sessions.registered(OLDER, [OLDER])
    sessions.registered(Session("ipv4:10.0.0.1:4711", "10.0.0.1"), [OLDER])
    with pytest.raises(Superseded):
        sessions.check(OLDER._replace(host="::1"))


@pytest.mark.parametrize("unregistered", [False, True], ids=["core restarted", "unregistered between"])
def test_a_name_that_is_not_the_holders_is_refused_even_if_nothing_is_known_of_it(*, unregistered: bool) -> None:
    sessions = Sessions(ManualClock())
    if unregistered:
        sessions.registered(OLDER, [])
        sessions.unregistered()
    sessions.registered(YOUNGER, [])
    with pytest.raises(Superseded):
        sessions.check(OLDER)
    sessions.check(YOUNGER)
