"""Configurations as a user would write them (``guide/``): they load without a warning and do what their header says.

The engine is driven by commands alone. Amounts of asks are thousandths of a vcore unless named otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from kornel.core.config.loader import load
from kornel.core.domain.effects import Allocated, ApplicationRejected, PreemptionDecided, Released
from kornel.core.domain.reasons import Outcome
from tests.driven_core import DrivenCore

GUIDE = Path(__file__).parent / "guide"
S = 10**9


class Cluster(DrivenCore):
    """An engine with one of the guide's configurations and a node of *vcores*."""

    def __init__(self, name: str, vcores: int = 100) -> None:
        super().__init__((GUIDE / f"{name}.yaml").read_text())
        if vcores:
            self.node("n1", {"vcore": vcores * 1000})

    def begin(
        self,
        application_id: str = "app",
        queue: str = "",
        *,
        user: str = "ann",
        groups: Iterable[str] = (),
        tags: dict[str, str] | None = None,
    ) -> str:
        """The path of the leaf, or why there is none."""
        given = tuple((tags or {}).items())
        for effect in self.application(application_id, queue, user, groups=tuple(groups), tags=given):
            if isinstance(effect, ApplicationRejected):
                return effect.reason
        return self.state.applications[application_id].queue.path

    def ask(self, application_id: str, *keys: str, priority: int = 0, **amounts: int) -> None:
        size = amounts or {"vcore": 1000}
        self.submit(application_id, keys, size, priority=priority, allow_preempt_other=True)

    def placed(self) -> list[str]:
        """Keys in the order in which they are placed now."""
        return [effect.spec.key for effect in self.cycle() if isinstance(effect, Allocated)]

    def taken(self, *, seconds: int) -> set[str]:
        """Queues that lose work to preemption in the *seconds* to come."""
        lost: set[str] = set()
        for _ in range(seconds):
            self.now_ns += S
            effects = self.cycle() + self.engine.preempt(self.now_ns)
            released = {effect.key for effect in effects if isinstance(effect, Released)}
            for effect in effects:
                if isinstance(effect, PreemptionDecided) and effect.outcome is Outcome.TRIGGERED:
                    assert {victim.key for victim in effect.victims} <= released
                    lost |= {victim.key.rstrip("0123456789-") for victim in effect.victims}
        return lost


@pytest.mark.parametrize("path", sorted(GUIDE.glob("*.yaml")), ids=lambda path: path.stem)
def test_loads_without_a_warning(path: Path) -> None:
    """Nothing in the guide is misspelt, misleading or without effect."""
    assert load(path.read_text()).warnings == ()


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("namespace_quotas", {"tags": {"namespace": "dev"}}, "root.namespaces.dev"),
        ("namespace_quotas", {"tags": {"namespace": "Dev.EU"}}, "root.namespaces.dev_dot_eu"),
        ("namespace_quotas", {"queue": "root.namespaces.dev"}, "no-queue"),
        ("user_queues", {"tags": {"namespace": "dev"}}, "root.dev.ann"),
        ("user_queues", {"tags": {"namespace": "dev"}, "user": "a.b@c"}, "root.dev.a_dot_b@c"),
        ("user_queues", {"tags": {"namespace": "dev"}, "groups": ["guests"]}, "no-queue"),
        ("user_queues", {"tags": {"namespace": "dev"}, "user": "robot-7"}, "root.robots"),
        ("user_queues", {"tags": {"namespace": "dev"}, "user": "my-robot-7"}, "root.dev.my-robot-7"),
        ("user_queues", {}, "no-queue"),
        ("placement_chain", {"queue": "root.production", "user": "sue"}, "root.production"),
        ("placement_chain", {"queue": "production", "user": "sue"}, "root.production"),
        ("placement_chain", {"queue": "root.production", "groups": ["staff"]}, "root.users.ann"),
        ("placement_chain", {"queue": "root.production", "user": "admin"}, "root.production"),
        ("placement_chain", {"tags": {"namespace.parentqueue": "root.team.web"}, "groups": ["staff"]}, "root.team.web"),
        ("placement_chain", {"tags": {"namespace.parentqueue": "root.team"}, "groups": ["staff"]}, "root.users.ann"),
        ("placement_chain", {"queue": "root.users.new", "groups": ["staff"]}, "root.users.ann"),
        ("placement_chain", {"groups": ["contractors"]}, "root.leftovers"),
        ("placement_chain", {"user": "ann"}, "no-queue"),
        ("limits", {"queue": "root.small"}, "root.small"),
        ("resolver", {"queue": "root.operators", "groups": ["sudo"]}, "root.operators"),
        ("resolver", {"queue": "root.operators"}, "no-queue"),
    ],
)
def test_placement(name: str, given: dict[str, object], expected: str) -> None:
    """Each application gets to the queue that the rules and lists of its configuration give it."""
    found = Cluster(name).begin(**given)  # type: ignore[arg-type]
    assert found.partition(":")[0] == expected


def test_groups_that_were_looked_up_decide_like_given_ones() -> None:
    """What a resolver found comes with the command."""
    cluster = Cluster("resolver")
    for number, (looked_up, refused) in enumerate([(("wheel",), False), (("ann",), True)]):
        (effect, *_) = cluster.application(f"app{number}", "root.operators", "ann", looked_up=looked_up)
        assert isinstance(effect, ApplicationRejected) is refused


def test_limits_know_groups_that_were_looked_up() -> None:
    """A developer by look-up is held to the limit of the developers."""
    cluster = Cluster("limits")
    cluster.application("app", "root.large", "batch", looked_up=("batch", "developers"))
    cluster.ask("app", *[f"k{n}" for n in range(20)])
    assert len(cluster.placed()) == 6


def test_a_namespace_is_bound_by_the_template_its_tags_and_the_queue_above() -> None:
    """4 vcores from the template, 6 where a tag says so, 20 for all namespaces together."""
    cluster = Cluster("namespace_quotas")
    quota = '{"resources":{"vcore":{"value":6000}}}'
    cluster.begin("plain", tags={"namespace": "plain"})
    cluster.ask("plain", *[f"plain-{n}" for n in range(10)])
    assert len(cluster.placed()) == 4
    cluster.begin("rich", tags={"namespace": "rich", "namespace.resourcequota": quota})
    cluster.ask("rich", *[f"rich-{n}" for n in range(10)])
    assert len(cluster.placed()) == 6
    for name in ("c", "d", "e"):
        cluster.begin(name, tags={"namespace": name})
        cluster.ask(name, *[f"{name}-{n}" for n in range(10)])
    assert len(cluster.placed()) == 20 - 4 - 6


def test_no_more_applications_of_a_namespace_than_the_template_says() -> None:
    """The fourth waits until one is gone."""
    cluster = Cluster("namespace_quotas")
    for n in range(4):
        cluster.begin(f"app{n}", tags={"namespace": "dev"})
        cluster.ask(f"app{n}", f"k{n}", memory=1)
    cluster.node("n2", {"memory": 100})
    assert cluster.placed() == ["k0", "k1", "k2"]


@pytest.mark.parametrize(
    ("user", "groups", "queue", "vcores"),
    [
        pytest.param("batch", ("batch",), "root.large", 8, id="a user by name"),
        pytest.param("ann", ("staff",), "root.large", 4, id="anybody else"),
        pytest.param("ann", ("staff",), "root.small", 1, id="the queue's own limit is tighter"),
        pytest.param("batch", ("batch",), "root.small", 1, id="a name on root is no name in the queue"),
        pytest.param("batch", ("developers",), "root.large", 6, id="the group's limit is tighter"),
    ],
)
def test_limit(user: str, groups: tuple[str, ...], queue: str, vcores: int) -> None:
    """What one user gets of a cluster that has more."""
    cluster = Cluster("limits")
    cluster.begin("app", queue, user=user, groups=groups)
    cluster.ask("app", *[f"k{n}" for n in range(20)])
    assert len(cluster.placed()) == vcores


def test_limits_of_users_are_their_own_and_those_of_groups_are_shared() -> None:
    """Two developers get 4 and 2 vcores, somebody else another 4."""
    cluster = Cluster("limits")
    for user, groups in {"ann": ("developers",), "bob": ("developers",), "eve": ("sales",)}.items():
        cluster.begin(user, "root.large", user=user, groups=groups)
        cluster.ask(user, *[f"{user}-{n}" for n in range(10)])
    placed = cluster.placed()
    counts = {user: sum(key.startswith(user) for key in placed) for user in ("ann", "bob", "eve")}
    assert counts["ann"] + counts["bob"] == 6
    assert max(counts.values()) == counts["eve"] == 4


def test_third_application_of_a_user_waits() -> None:
    """Two at a time, and ten for the batch user."""
    cluster = Cluster("limits")
    for user in ("ann", "batch"):
        for n in range(4):
            cluster.begin(f"{user}{n}", "root.large", user=user)
            cluster.ask(f"{user}{n}", f"{user}{n}")
    assert sorted(cluster.placed()) == ["ann0", "ann1", "batch0", "batch1", "batch2", "batch3"]


def test_priorities_order_queues_and_fences_keep_them_apart() -> None:
    """The fence of urgent says 1000, whatever its asks say; those of tenant count inside only; background is last."""
    cluster = Cluster("priorities")
    for queue, priority in {
        "background": 5, "tenant.plain": 900, "tenant.first": 896, "urgent": 0,
    }.items():  # fmt: skip
        cluster.begin(queue, f"root.{queue}")
        cluster.ask(queue, queue, priority=priority)
    assert cluster.placed() == ["urgent", "tenant.first", "tenant.plain", "background"]


def full_of(owner: str, asker: str) -> Cluster:
    """A cluster of 10 vcores, all used by *owner*, where *asker* wants one."""
    cluster = Cluster("preemption", vcores=10)
    cluster.begin("owner", owner)
    cluster.ask("owner", *[f"victim-{n}" for n in range(10)])
    assert len(cluster.placed()) == 10
    cluster.begin("asker", asker)
    cluster.ask("asker", "wanted")
    return cluster


@pytest.mark.parametrize(
    ("owner", "asker", "taken"),
    [
        pytest.param("root.tenants.b", "root.tenants.a", True, id="what is owed is given back"),
        pytest.param("root.tenants.protected", "root.tenants.a", False, id="a disabled queue loses nothing"),
        pytest.param("root.tenants.b", "root.sandbox.c", False, id="a fence keeps inside"),
        pytest.param("root.sandbox.c", "root.tenants.a", True, id="a fence does not keep others out"),
        pytest.param("root.tenants.b", "root.tenants.protected", False, id="nothing is owed without a guarantee"),
    ],
)
def test_preemption(owner: str, asker: str, taken: bool) -> None:
    """After the delay of 10 s, and only by right."""
    cluster = full_of(owner, asker)
    assert cluster.taken(seconds=9) == set()
    assert cluster.taken(seconds=20) == ({"victim"} if taken else set())


def test_bin_packing_fills_one_node_first() -> None:
    """Asks go where the fewest GPUs are free."""
    cluster = Cluster("bin_packing", vcores=0)
    for node_id in ("n1", "n2", "n3"):
        cluster.node(node_id, {"vcore": 8000, "gpu": 4})
    cluster.begin("app", "root.training")
    cluster.ask("app", *[f"k{n}" for n in range(5)], vcore=1000, gpu=1)
    nodes = [effect.node_id for effect in cluster.cycle() if isinstance(effect, Allocated)]
    assert sorted(nodes.count(node_id) for node_id in set(nodes)) == [1, 4]
