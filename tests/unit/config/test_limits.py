"""User and group limits: T25 to T33, V10 to V20, V70, V71, B13, B25."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.config.reading import errors, load_root, partition_text, queue, root


def limit(users: list[str] | None = None, groups: list[str] | None = None, apps: int = 0, **resources: str) -> Any:
    keys: dict[str, Any] = {"limit": "case", "users": users or [], "groups": groups or [], "maxapplications": apps}
    return keys | ({"maxresources": resources} if resources else {})


BOB = ["bob"]

ONE_QUEUE: dict[str, tuple[list[Any], bool]] = {
    "T25 nobody named": ([limit(apps=1)], False),
    "T25 nothing limited": ([limit(BOB)], False),
    "T25 empty resources": ([limit(BOB) | {"maxresources": {}}], False),
    "T25 all resources 0": ([limit(BOB, memory="0", gpu="0")], False),
    "T25 one resource 0": ([limit(BOB, memory="1", gpu="0")], True),
    "T26 wildcard last": ([limit(["bob", "*"], apps=1)], True),
    "T26 wildcard first": ([limit(["*", "bob"], apps=1)], False),
    "T26 wildcard in an earlier limit": ([limit(["*"], apps=1), limit(BOB, apps=1)], False),
    "T26 wildcard twice": ([limit(["*"], apps=1), limit(["*"], apps=1)], False),
    "T26 twice": ([limit(BOB, apps=1), limit(BOB, apps=1)], False),
    "T26 case differs": ([limit(["bob", "Bob"], apps=1)], True),
    "T26 user wildcard does not bind groups": ([limit(["*"], apps=1), limit(groups=["dev"], apps=1)], True),
    "T27 only the group wildcard": ([limit(groups=["*"], apps=1)], False),
    "T27 group wildcard after a name": ([limit(groups=["dev", "*"], apps=1)], True),
    "T27 group wildcard in a later limit": ([limit(groups=["dev"], apps=1), limit(groups=["*"], apps=1)], True),
    "T27 only the user wildcard": ([limit(["*"], apps=1)], True),
    "V16 bad quantity": ([limit(BOB, memory="x")], False),
}


@pytest.mark.parametrize("case", ONE_QUEUE)
def test_limits_of_one_queue(case: str) -> None:
    """Limits of one queue name somebody once, limit something, and have wildcards last."""
    limits, accepted = ONE_QUEUE[case]
    if accepted:
        assert load_root(root(queue("a", limits=limits))).children[0].limits
    else:
        assert len(errors(partition_text(root(queue("a", limits=limits))))) == 1


@pytest.mark.parametrize("user", ["user space", "1", "*bob", "", "bob\n"])
def test_t28_bad_users(user: str) -> None:
    """A user is the wildcard or a valid name."""
    (problem,) = errors(partition_text(root(limits=[limit([user], apps=1)])))
    assert problem.path == "partitions[0].queues[0].limits[0].users[0]"


@pytest.mark.parametrize("user", ["u@d", "a.b", "system:serviceaccount:x:y", "_x", "machine$"])
def test_t28_good_users(user: str) -> None:
    """Domains and service accounts are names."""
    assert load_root(root(limits=[limit([user], apps=1)])).limits[0].users == (user,)


@pytest.mark.parametrize(("group", "accepted"), [("g@d", False), ("g/x", False), ("a.b", True), ("system:auth", True)])
def test_t28_groups(group: str, accepted: bool) -> None:
    """Group names have fewer characters."""
    if accepted:
        assert load_root(root(limits=[limit(groups=[group], apps=1)])).limits[0].groups == (group,)
    else:
        assert len(errors(partition_text(root(limits=[limit(groups=[group], apps=1)])))) == 1


@pytest.mark.parametrize(
    ("queue_apps", "apps", "accepted"), [(100, 1000, False), (100, 0, True), (0, 100, True), (100, 100, True)]
)
def test_t29_applications_of_the_queue(queue_apps: int, apps: int, accepted: bool) -> None:
    """A limit grants no more applications than its queue runs, on the root too (V19)."""
    limits = [limit(BOB, apps=apps, memory="1")]
    for text in (
        partition_text(root(queue("a", maxapplications=queue_apps, limits=limits))),
        partition_text(root(maxapplications=queue_apps, limits=limits)),
    ):
        if accepted:
            load_root(root(queue("a", maxapplications=queue_apps, limits=limits)))
        else:
            assert len(errors(text)) == 1


def test_t30_resources_of_the_queue() -> None:
    """A limit grants no more than the max of its own queue; those above it are not considered (V20)."""
    ten = {"memory": "10"}
    (problem,) = errors(partition_text(root(queue("a", m=ten, limits=[limit(BOB, memory="11")]))))
    assert problem.path.endswith("limits[0].maxresources.memory")
    load_root(root(queue("a", m=ten, limits=[limit(BOB, vcore="11")])))
    load_root(root(queue("g", queue("p", queue("a", limits=[limit(BOB, memory="11")])), m=ten)))


def levels(above: list[Any], below: list[Any]) -> str:
    return partition_text(root(queue("p", queue("c", limits=below), limits=above)))


LEVELS: dict[str, tuple[list[Any], list[Any], str]] = {
    "T31 above the same user": ([limit(BOB, memory="10")], [limit(BOB, memory="11")], "limit 10 in root.p"),
    "T31 another type": ([limit(BOB, memory="10")], [limit(BOB, vcore="11")], ""),
    "T31 in the units of the file": (
        [limit(BOB, vcore="1500m")],
        [limit(BOB, vcore="2")],
        "vcore 2 is above the limit 1500m in root.p",
    ),
    "T31 above the wildcard": ([limit(["*"], memory="10")], [limit(BOB, memory="11")], "limit 10 of * in root.p"),
    "a name is not bound by the wildcard beside it": (
        [limit(BOB, memory="20"), limit(["*"], memory="10")], [limit(BOB, memory="15")], "",
    ),
    "groups alike": ([limit(groups=["dev"], memory="1")], [limit(groups=["dev"], memory="2")], "group 'dev'"),
    "users and groups apart": ([limit(BOB, memory="1")], [limit(groups=BOB, memory="2")], ""),
    "T32 applications": ([limit(BOB, apps=5)], [limit(BOB, apps=6)], "maxapplications 6"),
    "T32 resources only (B25)": ([limit(BOB, apps=5)], [limit(BOB, memory="1")], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", LEVELS)
def test_limits_over_levels(case: str) -> None:
    """A level grants nobody more than the levels above it, by name or by wildcard (V70, V71)."""
    above, below, said = LEVELS[case]
    if said:
        (problem,) = errors(levels(above, below))
        assert said in problem.message
    else:
        load_root(root(queue("p", queue("c", limits=below), limits=above)))


def test_t31_siblings_may_sum_to_more() -> None:
    """Limits are no guarantees: siblings are compared with the parent one by one."""
    children = [queue(name, limits=[limit(BOB, memory=amount)]) for name, amount in (("a", "50"), ("b", "60"))]
    load_root(root(queue("p", *children, limits=[limit(BOB, memory="100")])))


def test_bounds_reach_past_levels() -> None:
    """A level without resources hides neither a wildcard nor a name further up (B13)."""
    for top in (["*"], BOB):
        middle = queue("m", queue("c", limits=[limit(BOB, memory="11")]), limits=[limit(BOB, apps=1)])
        assert len(errors(partition_text(root(queue("p", middle, limits=[limit(top, memory="10")]))))) == 1


def test_t33_partition_limits_are_those_of_the_root() -> None:
    """Limits of the partition are copied to the root, or equal those given there (V10)."""
    one, other = [limit(BOB, apps=1)], [limit(BOB, apps=2)]
    assert load_root(root(), limits=one).limits[0].users == ("bob",)
    assert load_root({"name": "a"}, limits=one).limits[0].max_applications == 1
    assert load_root(root(limits=one), limits=one).limits
    for different in (other, [one[0] | {"limit": "other"}], one + other):
        found = errors(partition_text(root(limits=one), limits=different))
        assert any("differ" in problem.message for problem in found)


def test_limit_values() -> None:
    """A limit without resources limits none; with a 0, the type is not available."""
    top = load_root(root(limits=[limit(BOB, apps=1), limit(["sue"], vcore="1", gpu="0")]))
    assert [one.max_resources for one in top.limits] == [None, {"vcore": 1000, "gpu": 0}]
