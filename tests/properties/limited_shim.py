"""A shim whose applications belong to several users, under random limits (config.md 10)."""

from __future__ import annotations

import json
import random
from typing import Any, Final

from kornel.core.domain.commands import ApplicationSpec
from tests.oracles import plain_limits
from tests.oracles.plain_limits import Limits, Owned, WrittenLimit
from tests.properties.shim import PARTITION, Shim, pick

OWNERS: Final = (
    ("amy", ("dev",)),
    ("amy", ("dev", "ops")),
    ("bob", ("ops", "dev")),
    ("bob", ()),
    ("eve", ("sales",)),
    ("eve", ("eve", "dev")),
)
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

    def __init__(self, variant: int, *, gangs: bool = False) -> None:
        self.limits: Limits = {}
        self.applications: dict[str, int] = {}
        self.owned_by: dict[str, Owned] = {}
        self.held_back = 0
        """How often an application was seen waiting for its turn to start."""
        self.parked = 0
        """How often a group of asks was seen waiting for any of these limits."""
        super().__init__(variant, gangs=gangs)

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
