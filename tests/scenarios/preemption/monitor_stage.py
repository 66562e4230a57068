"""A cluster under the periodic policy: what the worked cases need to build one and to watch it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from kornel.core.domain.commands import (
    AllocationSpec,
    AttachCallbacks,
    Command,
    NodeAction,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
)
from kornel.core.domain.effects import (
    Allocated,
    Effect,
    PreemptionDecided,
    PreemptionNotice,
    PreemptionNoticeWithdrawn,
    Released,
)
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.state.books import audit
from kornel.core.state.options import EngineOptions
from tests.driven_core import Amounts, DrivenCore

PARTITION: Final = "[rm]default"
SECOND_NS: Final = 10**9
START_S: Final = 100_000
START_NS: Final = START_S * SECOND_NS

AT_ONCE: dict[str, Any] = {"per_round": 1, "natural_factor": 1}
ONE = {"f": 1}


class Stage(DrivenCore):
    """An engine with a manual clock; ``now_s`` counts seconds since registration.

    Confirms the release of victims when told to, and keeps every effect in ``effects``.
    """

    def __init__(self, queues: dict[str, dict[str, Any]], **settings: Any) -> None:
        """*queues*: by path below root, ``resources`` and ``properties``; *settings*: of the monitor.

        ``root`` among the queues sets its properties; ``coexist``, ``governor`` and ``quotapreemptionenabled`` are
        settings of preemption itself.
        """
        self.effects: list[Effect] = []
        self._tick = 0
        self._queues = queues
        engine = Engine(EngineOptions(reservation_delay_ns=settings.pop("reservation_delay_ns", None)))
        super().__init__(self.configuration(**settings), now_ns=START_NS, engine=engine)

    def configuration(self, **settings: Any) -> str:
        """The same queues under other *settings*."""
        return configuration(self._queues, **settings)

    @property
    def now_s(self) -> float:
        return (self.now_ns - START_NS) / SECOND_NS

    def apply(self, command: Command) -> list[Effect]:
        effects = super().apply(command)
        assert not [effect for effect in effects if "Rejected" in type(effect).__name__], effects
        self.effects += effects
        return effects

    def drain(self, name: str) -> None:
        """The node takes no more asks; what runs there stays."""
        self.node(name, action=NodeAction.DRAIN_NODE)

    def application(self, name: str, queue: str = "", user: str = "tester", **details: Any) -> list[Effect]:
        """*queue* is the path below root. Applications added later count as submitted later."""
        self._tick += 1
        tags = (("application.creationtime", str(self._tick)),)
        return super().application(name, f"root.{queue}", user, tags=tags, **details)

    def submit(self, application: str, keys: Iterable[str], size: Amounts, **details: Any) -> list[Effect]:
        """Asks, or with ``node_id`` running allocations; later ones are younger, and all of them long since created
        unless *details* say otherwise."""
        specs = []
        for key in keys:
            self._tick += 1
            about = {"created_s": self._tick, "allow_preempt_other": True, **details}
            specs.append(AllocationSpec(key, application, PARTITION, Resources(size), **about))
        return self.apply(UpdateAllocations("rm", tuple(specs)))

    def attach(self) -> None:
        self.apply(AttachCallbacks("rm", preemption_notices=True))

    def run_to(self, now_s: float, budget: int = 250) -> list[Effect]:
        """Let time pass, with a stop whenever the engine wants one. Returns what came of it; books are checked."""
        found: list[Effect] = []
        until_ns = START_NS + round(now_s * SECOND_NS)
        while True:
            due_ns = self.engine.next_wakeup_ns()
            self.now_ns = until_ns if due_ns is None else min(until_ns, max(self.now_ns, due_ns))
            found += self.cycle(budget)
            if self.now_ns >= until_ns:
                break
        broken = audit.check(self.state)
        assert broken == [], broken
        assert self.state.law_violations == 0, [e for e in found if getattr(e, "outcome", "") is Outcome.LAW_BROKEN]
        self.effects += found
        return found

    def confirm(self, effects: list[Effect]) -> list[Effect]:
        """The victims that *effects* name have left."""
        victims = [e for e in effects if isinstance(e, Released)]
        specs = tuple(
            ReleaseSpec(PARTITION, e.application_id, e.key, TerminationType.PREEMPTED_BY_SCHEDULER) for e in victims
        )
        return self.apply(UpdateAllocations("rm", releases=specs))


def queue_tree(queues: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The entry of root in ``queues.yaml``, with *queues* by path below it; ``root`` among them sets root's own."""
    root: dict[str, Any] = {"name": "root", "submitacl": "*"}
    for path, described in queues.items():
        entry = root
        for name in path.split(".") if path != "root" else []:
            children = entry.setdefault("queues", [])
            found = next((child for child in children if child["name"] == name), None)
            if found is None:
                found = {"name": name}
                children.append(found)
            entry = found
        entry.update({key: value for key, value in described.items() if value})
    return root


def configuration(queues: dict[str, dict[str, Any]], **settings: Any) -> str:
    """``queues.yaml`` with *queues* by path below root, and the monitor under *settings*."""
    root = queue_tree(queues)
    preemption: dict[str, Any] = {"coexist": settings.pop("coexist", False)}
    for key in ("governor", "quotapreemptionenabled"):
        if key in settings:
            preemption[key] = settings.pop(key)
    preemption["monitor"] = {"enabled": True, "interval_ms": 5000, "max_wait_ms": 10000, **settings}
    return yaml.safe_dump({"partitions": [{"name": "default", "preemption": preemption, "queues": [root]}]})


def decided(effects: list[Effect], outcome: Outcome) -> dict[str, list[str]]:
    """By leaf, the keys that decisions with *outcome* name."""
    found: dict[str, list[str]] = {}
    for effect in effects:
        if isinstance(effect, PreemptionDecided) and effect.outcome is outcome:
            assert effect.kind == "monitor"
            found.setdefault(effect.queue.removeprefix("root."), []).extend(v.key for v in effect.victims)
    return found


def killed(effects: list[Effect]) -> list[str]:
    """Keys of allocations told to leave."""
    found = [effect for effect in effects if isinstance(effect, Released)]
    assert all(effect.termination == TerminationType.PREEMPTED_BY_SCHEDULER for effect in found)
    return [effect.key for effect in found]


def placed(effects: list[Effect]) -> list[str]:
    """Keys of asks that were placed."""
    return [effect.spec.key for effect in effects if isinstance(effect, Allocated)]


def guaranteed(**amounts: int) -> dict[str, dict[str, Any]]:
    return {name: {"resources": {"guaranteed": {"f": amount}} if amount else {}} for name, amount in amounts.items()}


def patient(queues: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """*queues* whose asks do not preempt by themselves, old as they are."""
    return {"root": {"properties": {"preemption.delay": "1000h"}}, **queues}


def two_queues(*, delayed: bool = False, **settings: Any) -> Stage:
    """a holds the whole cluster of 100, b is owed half of it. *delayed*: asks do not preempt by themselves so soon."""
    queues = guaranteed(a=50, b=50)
    stage = Stage(patient(queues) if delayed else queues, **{**AT_ONCE, **settings})
    stage.node("n", {"f": 100})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", [f"a{at:03}" for at in range(100)], ONE, node_id="n")
    return stage


def notices(effects: list[Effect]) -> list[PreemptionNotice]:
    return [effect for effect in effects if isinstance(effect, PreemptionNotice)]


def withdrawn(effects: list[Effect]) -> list[str]:
    return [key for effect in effects if isinstance(effect, PreemptionNoticeWithdrawn) for key in effect.keys]
