"""Whatever limits there are and whatever a shim does: users and groups are counted exactly, kept within their limits,
and nobody waits who could go on. Held against limits that are reckoned from scratch each time."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.domain.commands import ApplicationSpec
from core.model.allocations import Allocation
from core.policies import user_limits
from tests.oracles import plain_limits
from tests.oracles.plain_limits import Limits, Owned, WrittenLimit
from tests.properties.shim import (
    PARTITION,
    WIDTH,
    Operation,
    Shim,
    check_books,
    pick,
    random_history,
)

OWNERS: Final = (
    ("amy", ("dev",)),
    ("amy", ("dev", "ops")),
    ("bob", ("ops", "dev")),
    ("bob", ()),
    ("eve", ("sales",)),
    ("eve", ("eve", "dev")),
)
VARIANTS = st.integers(0, 9_999)
HISTORIES = st.lists(st.tuples(*[st.integers(0, 9_999)] * WIDTH), min_size=15, max_size=80)

_DEPTHS: Final = {"root": 0, "root.p": 1, "root.p.a": 2, "root.p.b": 2, "root.q": 1, "root.r": 1}


def written(variant: int) -> tuple[Limits, dict[str, int]]:
    """Random limits and maximum numbers of applications; amounts shrink downwards, so that each is valid."""
    dice = random.Random(variant)
    limits: dict[str, list[WrittenLimit]] = {}
    applications: dict[str, int] = {}
    for path, depth in _DEPTHS.items():
        if dice.random() < 0.4:
            applications[path] = 4 - depth
        users = [name for name in ("amy", "bob", "eve", "*") if dice.random() < 0.3]
        groups = [name for name in ("ops", "dev", "eve") if dice.random() < 0.3]
        dice.shuffle(groups)
        if groups and dice.random() < 0.4:
            groups.append("*")
        entries = [((name,), ()) for name in users] + [((), (name,)) for name in groups]
        for users_, groups_ in entries:
            most = {name: 22 - 7 * depth - dice.randrange(6) for name in ("vcore", "memory") if dice.random() < 0.6}
            count = max(1, 3 - depth - dice.randrange(2)) if not most or dice.random() < 0.4 else 0
            limits.setdefault(path, []).append(WrittenLimit(users_, groups_, most, count))
    return limits, applications


def configuration(variant: int) -> str:
    """The leaves of the shim, with limits."""
    limits, applications = written(variant)
    queues: dict[str, dict[str, Any]] = {}
    for path in _DEPTHS:
        parent, _, name = path.rpartition(".")
        queue: dict[str, Any] = {"name": name}
        if path in applications:
            queue["maxapplications"] = applications[path]
        queue["limits"] = [_entry(limit) for limit in limits.get(path, ())]
        queues[path] = queue
        if parent:
            queues[parent].setdefault("queues", []).append(queue)
    queues["root"] |= {"submitacl": "*", "properties": {"preemption.delay": "2s"}}
    queues["root.p"]["resources"] = {"guaranteed": {"vcore": "16m"}, "max": {"vcore": "24m"}}
    queues["root.q"]["resources"] = {"guaranteed": {"vcore": "12m"}}
    policy = ("fifo", "fair")[variant % 2]
    queues["root.p.a"]["properties"] = {"application.sort.policy": policy}
    return json.dumps({"partitions": [{"name": "default", "queues": [queues["root"]]}]})


def _entry(limit: WrittenLimit) -> dict[str, Any]:
    entry: dict[str, Any] = {"limit": "", "users": list(limit.users), "groups": list(limit.groups)}
    if limit.most:
        entry["maxresources"] = {
            name: f"{amount}m" if name == "vcore" else str(amount) for name, amount in limit.most.items()
        }
    if limit.applications:
        entry["maxapplications"] = limit.applications
    return entry


class LimitedShim(Shim):
    """Its applications belong to several users, and it keeps account of the groups they count for."""

    def __init__(self, variant: int) -> None:
        self.limits: Limits = {}
        self.applications: dict[str, int] = {}
        self.owned_by: dict[str, Owned] = {}
        self.held_back = 0
        """How often an application was seen waiting for its turn to start."""
        self.parked = 0
        """How often a group of asks was seen waiting for any of these limits."""
        super().__init__(variant)

    def configured(self, variant: int) -> str:
        before = self.limits
        self.limits, self.applications = written(variant)
        for name, owned in self.owned_by.items():
            never_asked = self.states.get(name) == "New"
            if never_asked or owned.group is None or plain_limits.lost(before, self.limits, owned):
                owned.group = plain_limits.chosen_group(self.limits, owned)
        return configuration(variant)

    def owned(self, application_id: str, queue: str, number: int) -> ApplicationSpec:
        user, groups = pick(OWNERS, number)
        if application_id not in self.states:
            owned = Owned(user, groups or (user,), queue)
            owned.group = plain_limits.chosen_group(self.limits, owned)
            self.owned_by[application_id] = owned
        return ApplicationSpec(application_id, queue, PARTITION, user=user, groups=groups)

    def everybody(self) -> dict[str, Owned]:
        """Live applications with what they hold now, by the shim's own account of where its requests are."""
        live = {name: self.owned_by[name] for name in self.states}
        for owned in live.values():
            owned.held = []
        for key, node_id in self.requests.items():
            if node_id is not None:
                live[self.owners[key]].held.append(dict(self.state.requests[key].shape.resources))
        return live


def check_headroom(shim: LimitedShim) -> None:
    """Every application counts for the right group, and has the headroom that the rules give it."""
    everybody = shim.everybody()
    for name, owned in everybody.items():
        application = shim.state.applications[name]
        assert application.limit_group == owned.group, f"{name} of {owned}"
        left = shim.state.types.resources(user_limits.headroom(application.accounts))
        assert dict(left) == plain_limits.headroom(shim.limits, owned, everybody.values()), f"{name} of {owned}"


def usage(shim: LimitedShim) -> dict[tuple[str, str, str, str], tuple[int, int]]:
    """(used, limit) of every limited type of everybody whom a limit binds."""
    everybody = shim.everybody().values()
    return {
        (bound.path, bound.kind, bound.name, name): (bound.used(name), most)
        for owned in everybody
        for bound in plain_limits.bounds(shim.limits, owned, everybody)
        for name, most in bound.limit.most.items()
    }


def counts(shim: LimitedShim) -> dict[str, int]:
    """Applications that run or start, by queue with a limit on them."""
    return {
        path: sum(
            path in plain_limits.paths(owned.path)
            and (shim.states[name] == "Running" or shim.state.applications[name].allocating)
            for name, owned in shim.everybody().items()
        )
        for path in shim.applications
    }


def check_nothing_above(
    shim: LimitedShim,
    used_before: Mapping[tuple[str, str, str, str], tuple[int, int]],
    counts_before: Mapping[str, int],
) -> None:
    """A cycle takes nobody further above a limit than it found them."""
    for who, (used, most) in usage(shim).items():
        assert used <= most or used <= used_before[who][0], f"{who} holds {used} of {most}"
    for path, count in counts(shim).items():
        assert count <= max(shim.applications[path], counts_before[path]), f"{count} applications in {path}"


def check_nobody_forgotten(shim: LimitedShim) -> None:
    """After a settled cycle no ask waits that every limit admits and an open node can hold."""
    everybody = shim.everybody()
    running = counts(shim)
    for ask in shim.state.requests.values():
        if not ask.pending or ask.reservation is not None or not _has_room(shim, ask):
            continue
        name = ask.application.application_id
        owned = everybody[name]
        if shim.states[name] == "Accepted":
            gated = any(
                running[path] + 1 > shim.applications[path]
                for path in plain_limits.paths(owned.path)
                if path in shim.applications and not ask.application.allocating
            )
            if gated or not plain_limits.may_hold(shim.limits, owned, everybody.values()):
                continue
        left = plain_limits.headroom(shim.limits, owned, everybody.values())
        short = [n for n, amount in ask.shape.resources.items() if amount and amount > left.get(n, amount)]
        assert short, f"{ask} waits for nothing"


def _has_room(shim: LimitedShim, ask: Allocation) -> bool:
    pairs = ask.shape.pairs
    if any(not queue.admits(pairs) for queue in ask.queue.lineage()):
        return False
    if ask.spec.required_node:
        node = shim.state.nodes.get(ask.spec.required_node)
        return node is not None and node.fits(pairs) and not node.reservations
    return any(n.schedulable and not n.reservations and n.fits(pairs) for n in shim.state.nodes.values())


def play(variant: int, history: list[Operation]) -> LimitedShim:
    shim = LimitedShim(variant)
    for operation in history:
        shim.perform(operation)
        check_books(shim)
        check_headroom(shim)
        used, running = usage(shim), counts(shim)
        shim.settle()
        check_books(shim)
        check_headroom(shim)
        check_nothing_above(shim, used, running)
        check_nobody_forgotten(shim)
        applications = shim.state.applications.values()
        shim.held_back += sum(application.held_at is not None for application in applications)
        shim.parked += sum(group.kept_back for application in applications for group in application.groups.values())
    return shim


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(VARIANTS, HISTORIES)
def test_any_limits_and_any_history(variant: int, history: list[Operation]) -> None:
    """After every operation the books are sound, and every cycle keeps to the limits and uses them up."""
    play(variant, history)


def test_long_histories() -> None:
    """The same over long histories; in them limits do keep asks and applications back."""
    shims = [play(seed, list(random_history(seed, 150))) for seed in range(16)]
    assert sum(shim.held_back for shim in shims) > 100
    assert sum(shim.parked for shim in shims) > 500
