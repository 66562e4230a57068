"""Drives the engine through a random cluster, from start to quiet, and follows its effects and views alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    TerminationType,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import (
    Allocated,
    AllocationRejected,
    ApplicationRejected,
    ApplicationUpdated,
    Effect,
    NodeRejected,
    PreemptionDecided,
    Released,
)
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from tests.oracles.rules import guarantee
from tests.oracles.rules.arithmetic import fits
from tests.oracles.rules.world import Books, Task, ancestors
from tests.properties.preemption_course import Course
from tests.properties.preemption_decisions import DecisionJudge
from tests.properties.preemption_waiting import WaitingJudge
from tests.properties.rules_worlds import START_S, configuration
from tests.reading import read

RM: Final = "rm"
PARTITION: Final = "[rm]default"
LOWERED_AT_S: Final = START_S + 3
IDLE_STEPS_S: Final = (*[1] * 8, *[4] * 4, 16, 16, 16)
"""How long nothing may happen until a cluster counts as quiet, step by step."""
MONITOR_STEPS_S: Final = (60,) * 11
"""The same where the monitor is on: it may wait for ten minutes after what it took was of no use."""
MOST_DECISIONS: Final = 200
MOST_STEPS: Final = 600
PLANNED: Final = {Outcome.TRIGGERED, Outcome.FULL, Outcome.PARTIAL, Outcome.BEST_EFFORT}


@dataclass
class Run(Course):
    """One cluster from start to quiet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.decisions = DecisionJudge(self)
        self.waiting = WaitingJudge(self)
        self.engine = Engine()
        self.live: set[str] = set()
        self.departures: list[tuple[int, str]] = []
        self.round: list[str] = []
        """Whom the monitor takes at this second."""
        self.before_round = self.books
        """The books when it began to: asks that it serves may be placed within the same second."""
        self.born = 0

    def set_up(self) -> None:
        """The cluster of the world: configuration, nodes, what runs, what waits."""
        world = self.world
        self.engine.apply(RegisterManager(RM, configuration(world)), self.now_ns)
        create = tuple(
            NodeSpec(node.name, NodeAction.CREATE, PARTITION, capacity=_resources(node.capacity))
            for node in world.nodes
        )
        self.hear(self.engine.apply(UpdateNodes(RM, create), self.now_ns))
        for task, node_name in world.running:
            self.books.running[task.key] = (task, node_name)
            self.revive(task)
            self.send(self.spec(task, node_name))
        drain = tuple(NodeSpec(n.name, NodeAction.DRAIN_NODE, PARTITION) for n in world.nodes if n.drained)
        if drain:
            self.hear(self.engine.apply(UpdateNodes(RM, drain), self.now_ns))
        for task in world.asks:
            if task.created <= START_S:
                self.submit(task)

    def spec(self, task: Task, node: str = "") -> AllocationSpec:
        return AllocationSpec(
            task.key,
            task.application,
            PARTITION,
            _resources(task.amounts),
            priority=task.priority,
            node_id=node,
            originator=task.originator,
            allow_preempt_self=not task.opted_out,
            allow_preempt_other=task.may_preempt,
            created_s=task.created,
            required_node=task.required_node,
        )

    def revive(self, task: Task) -> None:
        if task.application not in self.live:
            self.live.add(task.application)
            added = ApplicationSpec(task.application, task.queue, PARTITION, user="user")
            self.hear(self.engine.apply(UpdateApplications(RM, (added,)), self.now_ns))

    def submit(self, task: Task) -> None:
        self.books.asks[task.key] = task
        self.revive(task)
        self.send(self.spec(task))

    def send(self, spec: AllocationSpec) -> None:
        self.hear(self.engine.apply(UpdateAllocations(RM, (spec,)), self.now_ns))

    def play(self) -> Run:
        """Until nothing happens any more, or far too much has."""
        self.set_up()
        idle = steps = 0
        events = [at for at, _ in (*self.world.withdrawn, *self.world.turned)]
        events += [task.created - START_S for task in self.world.asks]
        lowered = all(queue.lowered is None for queue in self.world.queues)
        pauses = IDLE_STEPS_S + MONITOR_STEPS_S if self.world.monitor else IDLE_STEPS_S
        while idle < len(pauses):
            self.busy = False
            self.do_what_happens()
            self.step()
            if not lowered and self.now_s >= LOWERED_AT_S:
                lowered = self.busy = True
                self.lower_maxima()
            steps += 1
            waits = not lowered or steps <= max(self.world.churn, *events, 0)
            idle = 0 if self.busy or self.departures or waits else idle + 1
            if self.decided > MOST_DECISIONS or steps > MOST_STEPS:
                self.complain(f"not quiet: {self.decided} decisions after {steps} steps")
                return self
            self.now_s += pauses[max(0, idle - 1)] if idle else 1
            if steps <= self.world.churn:
                self.end_one(steps)
        if self.world.monitor:
            # A round may give up what is held by age, and the next second holds it again.
            self.now_s += 1
            self.step()
        self.waiting.judge_quiet()
        self.judge_hours_later()
        return self

    def step(self) -> None:
        """Whoever has to leave by now leaves; then the engine does what it wants to do at this second."""
        due = [key for at, key in self.departures if at <= self.now_s]
        self.departures = [(at, key) for at, key in self.departures if at > self.now_s]
        for key in due:
            self.leave(key)
        if self.run_slices():
            # Victims that leave at once are gone within the second that they were told in.
            for _ in range(MOST_DECISIONS):
                due = [key for at, key in self.departures if at <= self.now_s]
                if not due:
                    break
                self.departures = [(at, key) for at, key in self.departures if at > self.now_s]
                for key in due:
                    self.leave(key)
                self.run_slices()
        self.waiting.judge_waiting()

    def run_slices(self) -> bool:
        """Slices of one decision each until there are no more, and a round of the other cycle. Whether it mattered."""
        heard = False
        more = True
        while more:
            result = self.engine.cycle(self.now_ns, 1)
            heard = self.hear(result.effects) or heard
            more = result.more
            for partition, what in result.standing.items():
                self.complain(f"no progress: {partition}: {what}")
                more = False
        self.refresh()
        heard = self.hear(self.engine.preempt(self.now_ns)) or heard
        self.end_round()
        return heard

    def lower_maxima(self) -> None:
        self.say("maxima are lowered")
        self.engine.apply(UpdateConfiguration(RM, configuration(self.world, lowered=True)), self.now_ns)
        for path, queue in self.books.queues.items():
            if queue.lowered is not None:
                self.books.queues[path] = replace(queue, maximum=queue.lowered)
        self.outgrown = set(self.waits)

    def do_what_happens(self) -> None:
        """What the world says of this second: asks come, tasks are taken back, nodes are drained or opened."""
        second = self.now_s - START_S
        for task in self.world.asks:
            if second and task.created == self.now_s:
                self.submit(task)
        for at, key in self.world.withdrawn:
            if at == second:
                self.withdraw(key)
        for at, name in self.world.turned:
            if at == second:
                node = self.books.nodes[name]
                self.books.nodes[name] = replace(node, drained=not node.drained)
                self.say(f"{name} is {'opened' if node.drained else 'drained'}")
                action = NodeAction.DRAIN_TO_SCHEDULABLE if node.drained else NodeAction.DRAIN_NODE
                self.hear(self.engine.apply(UpdateNodes(RM, (NodeSpec(name, action, PARTITION),)), self.now_ns))

    def withdraw(self, key: str) -> None:
        """Whoever asked for *key* takes it back, whether it waits or runs. A victim is left alone."""
        books = self.books
        if key in books.leaving or (key not in books.asks and key not in books.running):
            return
        task = books.asks.pop(key, None) or books.running.pop(key)[0]
        self.say(f"{key} is taken back")
        self.busy = True
        for known in (books.claims, books.holds, self.waits, self.free_since):
            known.pop(key, None)
        entry = ReleaseSpec(PARTITION, task.application, key, TerminationType.STOPPED_BY_RM)
        self.hear(self.engine.apply(UpdateAllocations(RM, releases=(entry,)), self.now_ns))

    def end_one(self, turn: int) -> None:
        """Some task ends by itself, and its owner asks for one like it."""
        running = [task for task, _ in self.books.running.values() if task.key not in self.books.leaving]
        if not running:
            return
        task = running[turn * 7 % len(running)]
        _, node = self.books.running.pop(task.key)
        self.say(f"{task.key} ends on {node}")
        ended = ReleaseSpec(PARTITION, task.application, task.key, TerminationType.STOPPED_BY_RM)
        self.hear(self.engine.apply(UpdateAllocations(RM, releases=(ended,)), self.now_ns))
        self.resubmit(task)

    def resubmit(self, task: Task) -> None:
        """The owner of *task* asks for another one like it."""
        self.born += 1
        self.submit(replace(task, key=f"{task.key.partition('+')[0]}+{self.born}", created=self.now_s))

    def leave(self, key: str) -> None:
        """The shim confirms that the victim *key* has left. Its owner may ask for it once more."""
        task, node = self.books.running.pop(key)
        self.books.leaving.pop(key, None)
        self.say(f"{key} has left {node}")
        self.busy = True
        for ask, victims in self.waits.items():
            if key in victims:
                victims.discard(key)
                if not victims:
                    self.free_since[ask] = self.now_s
        gone = ReleaseSpec(PARTITION, task.application, key, TerminationType.PREEMPTED_BY_SCHEDULER)
        self.hear(self.engine.apply(UpdateAllocations(RM, releases=(gone,)), self.now_ns))
        if self.world.recreate:
            self.resubmit(task)

    def hear(self, effects: list[Effect]) -> bool:
        """Follow *effects* in the books and judge each. Whether there were any that change something."""
        if not effects:
            return False
        before = self.books.seen(self.books.claims, self.books.holds)
        after = self.look()
        changed = False
        self.fresh.clear()
        for effect in effects:
            match effect:
                case Allocated(spec, node, _) if spec.key in self.books.asks:
                    self.placed(self.books.asks[spec.key], node, before, after)
                    changed = True
                case Released(_, _, key, TerminationType.PREEMPTED_BY_SCHEDULER, _) if key in self.books.running:
                    self.told(key, "")
                    changed = True
                case PreemptionDecided():
                    changed = self.heard_decision(effect, after) or changed
                case ApplicationUpdated(application, "Completed" | "Failed", _, _):
                    self.live.discard(application)
                case AllocationRejected() | ApplicationRejected() | NodeRejected():
                    raise AssertionError(f"unexpected: {effect}")
        self.books.claims, self.books.holds = dict(after.claims), dict(after.holds)
        self.busy = self.busy or changed
        return changed

    def refresh(self) -> None:
        """Take over what the engine shows of claims and holds: a hold comes and goes without an effect."""
        shown = self.look()
        self.books.claims, self.books.holds = shown.claims, shown.holds

    def look(self) -> Books:
        """The books with the claims and holds that the engine shows now."""
        if not self.books.asks:
            return self.books.seen({}, {})
        views = read(self.engine, PARTITION, self.now_ns)
        claims: dict[str, int] = {}
        holds: dict[str, str] = {}
        for node in views.nodes():
            holds |= dict.fromkeys(node.reservations, node.node_id)
        for application in {ask.application for ask in self.books.asks.values()}:
            shown = views.application(application)
            for ask in shown.asks if shown is not None else ():
                if ask.triggered_preemption:
                    self.decided += 1 if ask.spec.key not in self.books.claims else 0
                    claims[ask.spec.key] = self.books.claims.get(ask.spec.key, self.decided)
                    if self.world.monitor and ask.spec.key not in self.used_before:
                        # Its decisions name queues: the asks that they serve show in what is claimed.
                        task = self.books.asks[ask.spec.key]
                        self.used_before[ask.spec.key] = {
                            (path, t): self.books.used(path, t) for path in ancestors(task.queue) for t in task.amounts
                        }
        return self.books.seen(claims, holds)

    def told(self, key: str, ask: str) -> None:
        """*key* was told to leave."""
        if not any(key == other for _, other in self.departures):
            self.departures.append((self.now_s + self.world.leave_after, key))
        self.books.leaving[key] = ask or self.books.leaving.get(key, "")

    def placed(self, ask: Task, node: str, before: Books, after: Books) -> None:
        """An ask got its node. It had to have room there, and nobody before it may have been waiting for that room."""
        books = self.books
        self.say(f"{ask.key} {dict(ask.amounts)} of {ask.queue} is placed on {node}")
        if self.books.nodes[node].drained and not ask.required_node and before.holds.get(ask.key) != node:
            self.complain(f"closed node: {ask.key} placed on {node}")
        kept = {key: where for key, where in before.holds.items() if after.holds.get(key, where) == where}
        kept = {
            key: where for key, where in kept.items() if key in after.holds or key not in after.asks or key == ask.key
        }
        every = after.asks | before.asks | books.asks
        claims = {key: at for key, at in (before.claims | books.claims).items() if key not in self.passed_on}
        passing = self.note_passing(ask, node, every, after)
        kept = {
            key: where
            for key, where in kept.items()
            if key == ask.key
            or (key in claims and key not in passing)
            or not (key in every and (key in claims or guarantee.is_lent(books, every[key], ask)))
        }
        if ask.key in claims and books.holds.get(ask.key) == node:
            kept[ask.key] = node  # It was told in the same effects that the room is its own.
        seen = books.seen(claims, kept)
        if not fits(ask.amounts, lambda t: books.free(node, t)):
            self.complain(f"no room: {ask.key} placed on {node}")
        elif not fits(ask.amounts, lambda t: seen.open(node, t, ask.key, only_before=True)):
            first = [key for key, where in kept.items() if where == node and key != ask.key]
            self.complain(f"passed: {ask.key} placed on {node} in room that is held for {', '.join(first)}")
        allowed = self.used_before.pop(ask.key, {})
        for path in ancestors(ask.queue)[:-1]:
            for t, maximum in books.queues[path].maximum.items():
                amount = ask.amounts.get(t, 0)
                if amount and books.used(path, t) + amount > max(maximum, allowed.get((path, t), 0)):
                    self.complain(f"max: {ask.key} carries {path} to {books.used(path, t) + amount} of {maximum} {t}")
        if ask.required_node:
            self.overtake(node)
        del books.asks[ask.key]
        books.running[ask.key] = (ask, node)
        for gone in (books.claims, books.holds, self.waits, self.free_since):
            gone.pop(ask.key, None)

    def note_passing(self, ask: Task, node: str, asks: Mapping[str, Task], after: Books) -> set[str]:
        """Notes who of *asks* has a firm claim on *node* no more, because *ask*, which comes before it in its leaf,
        uses or claims room there (preemption.md B.7). Returns their keys."""
        rank = (-ask.priority, ask.created)
        passing = {
            key
            for key, other in asks.items()
            if key != ask.key and other.queue == ask.queue and rank <= (-other.priority, other.created)
            if key not in after.claims or after.holds.get(key) != node
        }
        self.passed_on |= {key for key in passing if self.meant_for.get(key) == node}
        return passing

    def overtake(self, node: str) -> None:
        """A task that can run on *node* only comes before all who preempted for it: they may have to look elsewhere."""
        self.overtaken |= {key for key, where in self.meant_for.items() if where == node}

    def heard_decision(self, decision: PreemptionDecided, after: Books) -> bool:
        """Judge *decision* and mark its victims. Whether there are any."""
        if decision.key:
            self.outcomes[decision.key] = decision.outcome
        if decision.kind == "monitor":
            self.heard_monitor(decision)
            return decision.outcome in (Outcome.TRIGGERED, Outcome.NOTIFIED)
        if decision.outcome not in PLANNED and not (decision.kind == "quota" and decision.outcome is Outcome.NONE):
            return False
        keys = [victim.key for victim in decision.victims]
        for key in keys:
            self.books.leaving.pop(key, None)
        victims = [self.books.running[key] for key in keys]
        said = ", ".join(f"{task.key} {dict(task.amounts)} of {task.queue} on {node}" for task, node in victims)
        self.say(f"{decision.kind} {decision.outcome} {decision.key or decision.queue} {decision.node_id} ← {said}")
        self.decided += 1
        ask = self.books.asks.get(decision.key)
        if decision.kind == "quota":
            self.decisions.judge_quota(decision, victims)
        elif ask is not None and decision.kind == "required-node":
            self.decisions.judge_required(ask, victims, after)
        elif ask is not None:
            self.decisions.judge_guarantee(ask, decision.node_id, victims, after)
        else:
            self.complain(f"unknown: {decision.kind} decided for {decision.key or decision.queue}")
        for key in keys:
            self.told(key, decision.key)
        if ask is not None:
            self.note_passing(ask, decision.node_id, self.books.asks, after)
            self.fresh.add(ask.key)
            if ask.required_node:
                self.overtake(ask.required_node)
            self.overtaken.discard(ask.key)
            self.outgrown.discard(ask.key)
            self.passed_on.discard(ask.key)
            self.books.claims[ask.key] = self.decided
            self.books.holds[ask.key] = self.meant_for[ask.key] = decision.node_id
            self.waits[ask.key] = set(keys)
            self.free_since.pop(ask.key, None)
            self.used_before[ask.key] = {
                (path, t): self.books.used(path, t) for path in ancestors(ask.queue) for t in ask.amounts
            }
        return bool(keys)

    def heard_monitor(self, decision: PreemptionDecided) -> None:
        """Follows the monitor: whom it gives notice, and whom it takes."""
        keys = [victim.key for victim in decision.victims]
        if decision.outcome is Outcome.TRIGGERED:
            self.decided += 1
            if not self.round:
                self.before_round = self.books.copied()
            for key in keys:
                self.told(key, "")
                self.round.append(key)
        elif decision.outcome is Outcome.NOTIFIED:
            self.say(f"monitor gives notice to {', '.join(keys)} of {decision.queue}")
        self.decisions.judge_notices(decision.outcome, keys)

    def end_round(self) -> None:
        """Has everybody judged together whom the monitor takes at this second."""
        keys, self.round = self.round, []
        if keys:
            self.decisions.judge_round(self.before_round, keys)

    def judge_hours_later(self) -> None:
        """A node stays held for a task that runs nowhere else, however long that takes."""
        waiting = {ask.key for ask in self.books.asks.values() if ask.required_node and ask.key in self.books.holds}
        if not waiting:
            return
        for _ in range(3):
            self.now_s += 4_000
            self.step()
        for key in waiting & self.books.asks.keys() - self.books.holds.keys():
            self.complain(f"required node not held: for {key} on {self.books.asks[key].required_node} after hours")


def _resources(amounts: Iterable[tuple[str, int]] | object) -> Resources:
    return Resources(dict(amounts))  # type: ignore[call-overload]
