"""Who may submit to a queue or administer it: config.md 9, T73, T74."""

from __future__ import annotations

import pytest

from kornel.core.policies.access import Submitter, may_administer
from tests.unit.config.reading import queue
from tests.unit.policies.placement.worlds import RECOVERY, application, partition


@pytest.mark.parametrize(
    ("text", "user", "groups", "granted"),
    [
        ("", "a", ("g",), False),
        (" ", "a", ("g",), False),
        ("*", "a", (), True),
        (" *", "a", (), True),
        ("* grp", "a", (), True),
        ("usr *", "a", (), True),
        ("a,b", "b", (), True),
        ("a,b", "c", ("a",), False),
        ("a,b", "A", (), False),
        ("a,b g1,g2", "c", ("g2",), True),
        ("a,b g1,g2", "c", ("g3",), False),
        (" g1", "g1", ("x",), False),
        (" g1", "x", ("g1",), True),
        ("*,a", "a", (), True),
        ("*,a", "b", (), False),
        ("a, b", "b", (), False),
        ("a, b", "x", ("b",), True),
        ("a#1", "a#1", (), True),
        (" g.h", "x", ("g.h",), True),
        ("system:serviceaccount:ns:sa", "system:serviceaccount:ns:sa", (), True),
        ("user1,user2 group1,group2", "user3", ("group3", "group1"), True),
    ],
)
def test_t73_one_list(text: str, user: str, groups: tuple[str, ...], granted: bool) -> None:
    """What a list grants to submit, and to administer, on the queue that has it."""
    submitting = partition(queue("q", submitacl=text), submitacl="").queues["root.q"]
    assert Submitter(user, groups).may_submit(submitting) == granted
    assert not may_administer(submitting, user, groups)
    administering = partition(queue("q", adminacl=text), submitacl="").queues["root.q"]
    assert Submitter(user, groups).may_submit(administering) == granted
    assert may_administer(administering, user, groups) == granted


def test_t74_ancestors_grant() -> None:
    """An admin list on a parent grants both on all below it, and nothing elsewhere."""
    state = partition(queue("p", queue("a", submitacl="sue"), adminacl="bob"), queue("q"), submitacl="")
    assert Submitter("bob", ()).may_submit(state.queues["root.p.a"])
    assert may_administer(state.queues["root.p.a"], "bob", ())
    assert Submitter("sue", ()).may_submit(state.queues["root.p.a"])
    assert not Submitter("sue", ()).may_submit(state.queues["root.p"])
    assert not Submitter("bob", ()).may_submit(state.queues["root.q"])


def test_nobody_submits_to_the_recovery_queue() -> None:
    """Not even who may submit everywhere (8.4)."""
    state = partition()
    recovery = state.new_queue("@recovery@", state.root, leaf=True, properties=state.root.properties)
    assert recovery.path == RECOVERY
    assert not Submitter(application().user, ()).may_submit(recovery)
