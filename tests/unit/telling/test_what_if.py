"""A preview tells what an update then does, and changes nothing."""

from __future__ import annotations

import json
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

from kornel.core.config.loader import load
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.domain.commands import CommandRefused, UpdateConfiguration
from kornel.core.domain.effects import ApplicationRejected
from kornel.core.domain.resources import Resources
from kornel.core.service.configuration.configuration_wire import impact_message
from kornel.core.service.configuration.reading_process import Judgement, Untried, answer_request, request_messages
from kornel.core.telling.configuration import task_moment
from kornel.core.telling.configuration.configuration_preview import ConfigurationPreview
from kornel.core.telling.configuration.impact import Impact, QueueChange, QueueChangeKind, SettingChange
from kornel.core.telling.explain import UserNamed
from kornel.core.telling.queues.headroom import Bound
from kornel.core.telling.reader import Reader
from kornel.v1.configuration_pb2 import PreviewConfigurationResponse
from tests.driven_core import DrivenCore
from tests.reading import read, status_of
from tests.unit.config.reading import partition_text, queue, root
from tests.unit.partition.graph import digest

SECOND = 10**9
PARTITION = "[rm]default"
RULES = [{"name": "provided"}, {"name": "tag", "value": "namespace", "create": True}]
OLD: tuple[Any, ...] = (
    queue("prod", queue("web", m={"vcore": "20"}), queue("batch"), m={"vcore": "30"}),
    queue("dev"),
    queue("empty"),
)


def text(*queues: Any, **keys: Any) -> str:
    settings = {"placementrules": RULES, **keys}
    return partition_text(root(*queues, submitacl="*"), **settings)


class Core(DrivenCore):
    """One partition with a node, three applications in managed queues and one in a dynamic queue."""

    def __init__(self, config: str = text(*OLD)) -> None:
        super().__init__(config)
        self.config = config
        self.node("n1", {"vcore": 100_000})
        self.application("web", "root.prod.web", "ann", groups=("staff",))
        self.application("batch", "root.prod.batch", "bob")
        self.application("dev", "root.dev", "ann")
        self.application("ns", "", "bob", tags=(("namespace", "team"),))
        for name, count in (("web", 12), ("batch", 6), ("dev", 3), ("ns", 2)):
            self.ask(name, count)
        self.cycle()
        # An ask that waits, and timers, so that there is something a preview could disturb.
        self.ask("web", 1, vcore=50_000)
        self.engine.cycle(SECOND, 1_000)

    def ask(self, name: str, count: int, vcore: int = 1_000) -> None:
        self.submit(name, (f"{name}-{number}-{vcore}" for number in range(count)), {"vcore": vcore})

    def preview(self, config: str) -> Impact:
        """What *config* would change; fails if asking changes anything."""
        before = digest(self.engine)
        configuration = load(config)
        reader = Reader(self.engine)
        preview = reader.configuration_preview()
        untried = preview.impact_of(configuration).untried
        if untried:
            assert self.ask_elsewhere(preview, config) == untried
            preview = reader.configuration_preview(untried)
        impact = preview.impact_of(configuration)
        assert digest(self.engine) == before, "a preview changes nothing"
        elsewhere = self.ask_elsewhere(preview, config)
        assert isinstance(elsewhere, bytes)
        assert PreviewConfigurationResponse.FromString(elsewhere) == impact_message(impact, configuration.warnings)
        return impact

    def ask_elsewhere(self, preview: ConfigurationPreview, config: str) -> bytes | Untried:
        """The answer of the process for large texts."""
        messages = [ForkingPickler.dumps(message) for message in request_messages(self.config, config, preview)]
        answer = answer_request(ConfigurationReader(), lambda: pickle.loads(messages.pop(0)))  # noqa: S301 - it is ours
        assert not isinstance(answer, Judgement)
        return answer

    def update(self, config: str) -> None:
        self.config = config
        self.now_ns = 2 * SECOND
        self.apply(UpdateConfiguration("rm", config))

    def queues(self) -> dict[str, Any]:
        return {found.path: found for found in status_of(self.engine).partitions[0].queues}


def amounts(**given: int) -> Resources:
    return Resources(given)


def kinds(impact: Impact) -> dict[str, str]:
    return {change.path: str(change.kind) for change in impact.queues}


def test_the_digest_sees_the_smallest_change() -> None:
    """What the other tests of this file rest on."""
    core = Core()
    state = core.state
    before = digest(core.engine)
    assert digest(core.engine) == before
    state.queues["root.prod.web"].used[0] += 1
    assert digest(core.engine) != before
    state.queues["root.prod.web"].used[0] -= 1
    assert digest(core.engine) == before
    application = state.applications["web"]
    state.queues["root.prod.web"].order.mark_changed(application)
    application.groups.clear()
    assert digest(core.engine) != before


def test_the_configuration_in_force() -> None:
    """Nothing would change."""
    core = Core()
    assert core.preview(text(*OLD)) == Impact(changed=False, checksum=core.engine.checksum)


def test_queues_that_come_go_drain_and_change() -> None:
    """Each queue is told by what becomes of it, and the update does just that."""
    core = Core()
    new = text(queue("prod", queue("web", m={"vcore": "10"}), queue("new"), m={"vcore": "30"}), queue("team"))
    impact = core.preview(new)
    assert kinds(impact) == {
        "root.prod.web": "changed",
        "root.prod.batch": "drained",
        "root.prod.new": "added",
        "root.dev": "drained",
        "root.empty": "removed",
        "root.team": "adopted",
    }
    web = next(change for change in impact.queues if change.path == "root.prod.web")
    assert web == QueueChange(
        PARTITION, "root.prod.web", QueueChangeKind.CHANGED, 1, (SettingChange("max.vcore", "20000", "10000"),)
    )
    before = core.queues()
    core.update(new)
    after = core.queues()
    assert {path for path in after if after[path].draining} == {"root.prod.batch", "root.dev", "root.empty"}
    assert after.keys() - before.keys() == {"root.prod.new"}
    assert after["root.prod.web"].max == amounts(vcore=10_000)
    core.engine.cycle(30 * SECOND, 1_000)
    assert core.queues().keys() == after.keys() - {"root.empty"}, "only the empty one is removed"


def test_limits_of_originators_and_users_are_told_as_numbers() -> None:
    core = Core(text(queue("a", properties={"originator.max": "vcore: 2"})))
    impact = core.preview(
        text(
            queue(
                "a", properties={"originator.max": "12.5%", "user-limit-factor": "2", "minimum-user-limit-percent": "9"}
            )
        )
    )
    (change,) = impact.queues
    assert {each.name: (each.before, each.after) for each in change.settings} == {
        "properties.originator.max": ("vcore=2000", "0.125"),
        "properties.user-limit-factor": ("", "2"),
        "properties.minimum-user-limit-percent": ("100", "9"),
    }
    core.update(text(queue("a")))
    (back,) = core.preview(text(queue("a", properties={"originator.max": "memory: 5, vcore: 1"}))).queues
    assert [(each.before, each.after) for each in back.settings] == [("", "memory=5 vcore=1000")]


def test_settings_are_called_as_they_are_written() -> None:
    """Properties and switches have their keys from the file, times are in seconds, and only what differs is told."""
    core = Core()
    own = {"quota.preemption.delay": "90s", "application.sort.policy": "fair", "preemption.delay": "1500ms"}
    impact = core.preview(
        text(
            *OLD[:2],
            queue("empty", properties=own),
            preemption={
                "quotapreemptionenabled": True,
                "cycle": {"interval_ms": 250},
                "victim": {"timeout": "10m"},
                "governor": {
                    "victims": {"required-node": {"ask": 5}},
                    "window_ms": 5000,
                    "queue": {"victims": 7},
                    "shadow": ["quota", "guarantee"],
                },
            },
        )
    )
    (empty,) = impact.queues
    assert {(change.name, change.before, change.after) for change in empty.settings} == {
        ("properties.application.sort.policy", "fifo", "fair"),
        ("properties.preemption.delay", "30s", "1.5s"),
        ("properties.quota.preemption.delay", "0s", "90s"),
    }
    (partition,) = impact.partitions
    assert [(change.name, change.before, change.after) for change in partition.settings] == [
        ("preemption.quotapreemptionenabled", "false", "true"),
        ("preemption.cycle.interval", "1s", "0.25s"),
        ("preemption.governor.victims.required-node.ask", "128", "5"),
        ("preemption.governor.window", "600s", "5s"),
        ("preemption.governor.queue.victims", "10000", "7"),
        ("preemption.governor.shadow", "", "guarantee,quota"),
        ("preemption.victim.timeout", "300s", "600s"),
    ]


def test_a_queue_that_drains_is_listed_again() -> None:
    """It is active again."""
    core = Core()
    core.update(text(*OLD[:1], OLD[2]))
    impact = core.preview(text(*OLD))
    assert kinds(impact) == {"root.dev": "reactivated"}
    core.update(text(*OLD))
    assert not core.queues()["root.dev"].draining


def test_quotas_and_who_exceeds_them() -> None:
    """A queue above its new max is told with what it uses, and whether it was above the old one already."""
    core = Core()
    new = text(queue("prod", queue("web", m={"vcore": "10"}), queue("batch"), m={"vcore": "15"}), OLD[1], OLD[2])
    found = {(e.path, e.type): (e.used, e.max, e.already) for e in core.preview(new).quota_excesses}
    assert found == {
        ("root.prod", "vcore"): (18_000, 15_000, False),
        ("root.prod.web", "vcore"): (12_000, 10_000, False),
    }
    core.update(new)
    above = {
        path: (queue.used["vcore"], queue.max["vcore"])
        for path, queue in core.queues().items()
        if path != "root" and "vcore" in queue.max and queue.used["vcore"] > queue.max["vcore"]
    }
    assert above == {path: (used, most) for (path, _), (used, most, _) in found.items()}
    again = text(queue("prod", queue("web", m={"vcore": "9"}), queue("batch"), m={"vcore": "15"}), OLD[1], OLD[2])
    assert {(e.path, e.already) for e in core.preview(again).quota_excesses} == {
        ("root.prod", True),
        ("root.prod.web", True),
    }


def test_applications_that_would_not_be_placed() -> None:
    """Those that placement takes today and would turn away; submitted after the update, they are."""
    core = Core()
    new = text(*OLD[:1], OLD[2], placementrules=[{"name": "provided"}])
    found = {a.application_id: a.reason for a in core.preview(new).unplaced}
    assert found.keys() == {"dev", "ns"}
    assert "root.dev is draining" in found["dev"]
    core.update(new)
    for name, path, tags in (("dev", "root.dev", ()), ("ns", "", (("namespace", "team"),))):
        (effect,) = core.application(f"{name}-again", path, "ann", tags=tags)
        assert isinstance(effect, ApplicationRejected)
        assert found[name] in effect.reason
    assert len(core.application("web-again", "root.prod.web", "ann")) == 1


def test_users_and_groups_above_their_limits() -> None:
    """Amounts and applications, of named users, of everybody on their own, and of groups."""
    core = Core()
    limits = [
        {"users": ["ann", "*"], "maxresources": {"vcore": "7"}, "maxapplications": 1},
        {"groups": ["staff"], "maxresources": {"vcore": "11"}},
    ]
    new = partition_text(root(*OLD, submitacl="*", limits=limits), placementrules=RULES)
    found = {(e.path, e.kind, e.name, e.type): (e.used, e.limit) for e in core.preview(new).limit_excesses}
    assert found == {
        ("root", "user", "ann", "vcore"): (15_000, 7_000),
        ("root", "user", "ann", ""): (2, 1),
        ("root", "user", "bob", "vcore"): (8_000, 7_000),
        ("root", "user", "bob", ""): (2, 1),
        ("root", "group", "staff", "vcore"): (12_000, 11_000),
    }
    core.update(new)
    assert all(e.already for e in core.preview(new + " ").limit_excesses)


def test_an_application_keeps_its_group() -> None:
    """A group that is listed additionally does not take over an application that counts for another one (10.4)."""
    core = Core(text(*OLD, limits=[{"groups": ["bob"], "maxresources": {"vcore": "9"}}]))
    limits = [{"groups": ["bob", "staff"], "maxresources": {"vcore": "7"}}]
    found = {(e.path, e.name, e.used) for e in core.preview(text(*OLD, limits=limits)).limit_excesses}
    assert found == {("root", "bob", 8_000), ("root", "staff", 12_000)}
    core.update(text(*OLD, limits=limits))
    explained = read(core.engine, PARTITION).explain(UserNamed("bob"))
    assert explained is not None
    assert [(level.name, level.used) for level in explained.levels] == [("bob", amounts(vcore=8_000))]


def test_limits_explained() -> None:
    """What a user holds, every limit on it and on its group, and the tightest of them (config.md 10.3)."""
    limits = [{"users": ["ann"], "maxresources": {"vcore": "20"}, "maxapplications": 3}]
    staff = [{"groups": ["staff"], "maxresources": {"vcore": "13"}}]
    core = Core(text(queue("prod", queue("web", limits=staff), queue("batch")), OLD[1], OLD[2], limits=limits))
    found = read(core.engine, PARTITION).explain(UserNamed("ann"))
    assert found is not None
    assert (found.used, found.applications) == (amounts(vcore=15_000), 2)
    assert [tuple(level)[:3] + tuple(level)[5:] for level in found.levels] == [
        ("root", "user", "ann", amounts(vcore=5_000), 2, 3),
        ("root.prod.web", "group", "staff", amounts(vcore=1_000), 1, 0),
    ]
    assert found.tightest == Bound("vcore", "root.prod.web", 1_000, 13_000)
    unbound = read(core.engine, PARTITION).explain(UserNamed("bob"))
    assert unbound is not None
    assert (unbound.levels, unbound.tightest) == ((), None)
    assert read(core.engine, PARTITION).explain(UserNamed("nobody")) is None
    assert Reader(core.engine).get("[rm]gpu") is None


def test_work_that_quota_enforcement_would_preempt() -> None:
    """What is above the lowered max, as far as guarantees allow, and after which delay (preemption.md D.4, D.6)."""
    core = Core()
    delay = {"properties": {"quota.preemption.delay": "90"}}
    prod = queue("prod", queue("web", m={"vcore": "10"}, **delay), queue("batch"), m={"vcore": "30"})
    assert core.preview(text(prod, OLD[1], OLD[2])).enforcements == (), "the partition's switch is off"
    switched = text(prod, OLD[1], OLD[2], preemption={"quotapreemptionenabled": True})
    (found,) = core.preview(switched).enforcements
    assert (found.path, found.amounts, found.delay_ns) == ("root.prod.web", amounts(vcore=2_000), 90 * SECOND)
    assert [victim.key for victim in found.victims] == ["web-0-1000", "web-1-1000"]
    assert (found.freed, found.unmet, found.reasons) == (amounts(vcore=2_000), amounts(), ())


def test_guarantees_bound_what_is_enforced() -> None:
    """An ancestor keeps what is guaranteed to it (D.6)."""
    core = Core()
    web = queue("web", m={"vcore": "10"}, properties={"quota.preemption.delay": "90"})
    prod = queue("prod", web, queue("batch"), g={"vcore": "17"}, m={"vcore": "30"})
    (found,) = core.preview(text(prod, preemption={"quotapreemptionenabled": True})).enforcements
    assert (found.amounts, found.freed) == (amounts(vcore=2_000), amounts(vcore=1_000))
    assert found.unmet == amounts(vcore=1_000)
    assert found.reasons == ("root.prod is guaranteed vcore=17 and holds vcore=17",)


def test_queues_that_are_due_at_once_and_whom_nobody_may_leave() -> None:
    """A parent only takes what its child has not given already (D.5); where nobody can go, that is said with the
    reason (D.9)."""
    core = Core()
    delay = {"properties": {"quota.preemption.delay": "90"}}
    web, batch = queue("web", m={"vcore": "10"}, **delay), queue("batch")
    prod = queue("prod", web, batch, m={"vcore": "15"}, **delay)
    empty = queue("empty", g={"vcore": "1"}, m={"vcore": "2"}, **delay)
    core.application("large", "root.empty", "ann")
    core.ask("large", 1, vcore=3_000)
    core.engine.cycle(SECOND, 1_000)
    found = core.preview(text(prod, empty, preemption={"quotapreemptionenabled": True})).enforcements
    assert [(one.path, one.amounts["vcore"], len(one.victims), dict(one.unmet)) for one in found] == [
        ("root.prod.web", 2_000, 2, {}),
        ("root.empty", 1_000, 0, {"vcore": 1_000}),
        ("root.prod", 1_000, 1, {}),
    ]
    assert found[1].reasons == (
        "root.empty is guaranteed vcore=1 and holds vcore=3, the smallest task there has vcore=3",
    )


def test_too_many_tasks_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the preview names the queue and its excess, and says why it names nobody."""
    monkeypatch.setattr(task_moment, "MOST_TASKS", 5)
    core = Core()
    web = queue("web", m={"vcore": "10"}, properties={"quota.preemption.delay": "90"})
    (found,) = core.preview(text(queue("prod", web), preemption={"quotapreemptionenabled": True})).enforcements
    assert (found.amounts, found.victims, found.unmet) == (amounts(vcore=2_000), (), amounts(vcore=2_000))
    assert found.reasons == ("there are too many tasks to tell who would leave",)


def test_what_would_be_refused() -> None:
    """The preview says what the update then says, and lists nothing else."""
    core = Core()
    new = text(queue("prod", queue("web", queue("below"))), OLD[1])
    impact = core.preview(new)
    assert impact._replace(refused=(), checksum="") == Impact(changed=True, checksum="")
    with pytest.raises(CommandRefused) as caught:
        core.update(new)
    assert str(caught.value) == "; ".join(impact.refused)


def test_partitions_that_come_and_go() -> None:
    """With how many applications go."""
    core = Core()
    two = json.loads(text(*OLD))["partitions"]
    (gpu,) = json.loads(text(queue("a")).replace('"default"', '"gpu"'))["partitions"]
    impact = core.preview(json.dumps({"partitions": [*two, gpu]}))
    assert [(p.partition, p.added, p.removed) for p in impact.partitions] == [("[rm]gpu", True, False)]
    assert kinds(impact) == {"root": "added", "root.a": "added"}
    impact = core.preview(json.dumps({"partitions": [gpu]}))
    assert [(p.partition, p.removed, p.applications) for p in impact.partitions] == [
        (PARTITION, True, 4),
        ("[rm]gpu", False, 0),
    ]


def test_settings_outside_the_queues() -> None:
    """Switches, rules and node order are told with their old and new values."""
    core = Core()
    new = text(*OLD, placementrules=RULES[:1], preemption={"enabled": False}, nodesortpolicy={"type": "binpacking"})
    (partition,) = core.preview(new).partitions
    assert {s.name: (s.before, s.after) for s in partition.settings} == {
        "preemption.enabled": ("true", "false"),
        "placementrules": ("provided tag=namespace+create", "provided"),
        "nodesortpolicy": ("fair memory=1.0 vcore=1.0", "binpacking memory=1.0 vcore=1.0"),
    }
