"""Drives the engine through random clusters and has a second implementation of the rules judge what it does.

What the engine decides is followed through its effects and views alone; :mod:`tests.oracles.rules` says what is wrong
with it. Run as a program it prints how many clusters broke which rule, and how much more was freed than needed:

    python -m tests.properties.preemption_rules --trees 20000 --seed 1
    python -m tests.properties.preemption_rules --trees 500 --show needless     # one example of each, made small
    python -m tests.properties.preemption_rules --world 4711                    # one cluster, step by step
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
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
from kornel.core.partition.engine import Engine
from tests.oracles.rules import guarantee, lowered_max, monitor, required_node
from tests.oracles.rules.arithmetic import Need, Victims, admits, fits, total, wanted
from tests.oracles.rules.world import Books, Task, World, ancestors
from tests.properties.rules_worlds import START_S, configuration, random_world, shrunk, written
from tests.reading import read

RM: Final = "rm"
PARTITION: Final = "[rm]default"
SECOND: Final = 10**9
LOWERED_AT_S: Final = START_S + 3
IDLE_STEPS_S: Final = (*[1] * 8, *[4] * 4, 16, 16, 16)
"""How long nothing may happen until a cluster counts as quiet, step by step."""
MONITOR_STEPS_S: Final = (60,) * 11
"""The same where the monitor is on: it may wait for ten minutes after what it took was of no use."""
PLACED_WITHIN_S: Final = 5
MOST_DECISIONS: Final = 200
MOST_STEPS: Final = 600
PLANNED: Final = {Outcome.TRIGGERED, Outcome.FULL, Outcome.PARTIAL, Outcome.BEST_EFFORT}
BOUNDED: Final = {Outcome.BUDGET_SPENT, Outcome.COOLING_DOWN, Outcome.LOOP}


@dataclass
class Tally:
    """Sums over decisions of one kind."""

    decisions: int = 0
    victims: int = 0
    freed: int = 0
    needed: int = 0

    def add(self, other: Tally) -> None:
        self.decisions += other.decisions
        self.victims += other.victims
        self.freed += other.freed
        self.needed += other.needed


@dataclass
class Run:
    """One cluster from start to quiet. ``complaints``: what broke which rule, ``rule: what``, with the second of it."""

    world: World
    trace: Callable[[str], None] | None = None
    complaints: list[str] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    now_s: int = START_S

    def __post_init__(self) -> None:
        self.engine = Engine()
        self.books = Books(
            {queue.path: queue for queue in self.world.queues},
            {node.name: node for node in self.world.nodes},
            strict=self.world.strict,
        )
        self.live: set[str] = set()
        self.departures: list[tuple[int, str]] = []
        self.waits: dict[str, set[str]] = {}
        """For each ask that has preempted, its victims that have not left."""
        self.free_since: dict[str, int] = {}
        """For each such ask whose victims have all left, when the last one did."""
        self.outcomes: dict[str, Outcome] = {}
        self.meant_for: dict[str, str] = {}
        """For each such ask, the node it preempted on."""
        self.outgrown: set[str] = set()
        """Those of them whose maxima were lowered after their victims had been told."""
        self.overtaken: set[str] = set()
        """Those of them whose node was needed for a task that runs nowhere else."""
        self.used_before: dict[str, dict[tuple[str, str], int]] = {}
        """For each such ask, what the queues of its path used when it preempted."""
        self.watch = monitor.Watch()
        self.round: list[str] = []
        """Whom the monitor takes at this second."""
        self.before_round = self.books
        """The books when it began to: asks that it serves may be placed within the same second."""
        self.served: tuple[int, dict[str, int]] = (0, {})
        """At which second asks last preempted, and for how much by then."""
        self.fresh: set[str] = set()
        """Asks that have preempted in the effects that are looked at."""
        self.decided = 0
        self.born = 0
        self.busy = False

    def complain(self, what: str) -> None:
        self.complaints.append(f"{what} (at {self.now_s - START_S} s)")
        self.say(f"    !! {what}")

    def say(self, line: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.now_s - START_S:>5} {line}")

    @property
    def now_ns(self) -> int:
        return self.now_s * SECOND

    # Setting up

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

    # Playing

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
        self.judge_quiet()
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
        self.judge_waiting()

    def run_slices(self) -> bool:
        """Slices of one decision each until there are no more, and a round of the other cycle. Whether it mattered."""
        heard = False
        more = True
        while more:
            result = self.engine.cycle(self.now_ns, 1)
            heard = self.hear(result.effects) or heard
            more = result.more
        self.refresh()
        heard = self.hear(self.engine.preempt(self.now_ns)) or heard
        self.judge_round()
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

    # Following

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
                    self.decided += 1 if ask.key not in self.books.claims else 0
                    claims[ask.key] = self.books.claims.get(ask.key, self.decided)
                    if self.world.monitor and ask.key not in self.used_before:
                        # Its decisions name queues: the asks that they serve show in what is claimed.
                        task = self.books.asks[ask.key]
                        self.used_before[ask.key] = {
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
        seen = books.seen(before.claims | books.claims, kept)
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
            self.judge_quota(decision, victims)
        elif ask is not None and decision.kind == "required-node":
            self.judge_required(ask, victims, after)
        elif ask is not None:
            self.judge_guarantee(ask, decision.node_id, victims, after)
        else:
            self.complain(f"unknown: {decision.kind} decided for {decision.key or decision.queue}")
        for key in keys:
            self.told(key, decision.key)
        if ask is not None:
            self.fresh.add(ask.key)
            if ask.required_node:
                self.overtake(ask.required_node)
            self.overtaken.discard(ask.key)
            self.outgrown.discard(ask.key)
            self.books.claims[ask.key] = self.decided
            self.books.holds[ask.key] = self.meant_for[ask.key] = decision.node_id
            self.waits[ask.key] = set(keys)
            self.free_since.pop(ask.key, None)
            self.used_before[ask.key] = {
                (path, t): self.books.used(path, t) for path in ancestors(ask.queue) for t in ask.amounts
            }
        return bool(keys)

    def variants(self, ask: Task, after: Books) -> Iterator[Books]:
        """The books with the claims and holds that may have been in force when *ask* was looked at, the likely first.

        What the engine dropped or took up between two looks at it was there or not: either may be so.
        """
        books = self.books
        yield books
        dropped = {key for key in books.claims if key in after.asks and key not in after.claims} - {ask.key}
        new = {key: at for key, at in after.claims.items() if key not in books.claims and key in books.asks}
        held = {key: at for key, at in books.holds.items() if after.holds.get(key, "") == at or key in books.claims}
        later = {key: at for key, at in after.holds.items() if key in books.asks and key != ask.key}
        less = {key: at for key, at in books.claims.items() if key not in dropped}
        if less != books.claims or held != books.holds:
            yield books.seen(less, held)
        if any(key in books.asks and books.asks[key].required_node for key in later):
            # A task that runs there only has taken the place of others, who look for new victims one after the other.
            first = {
                key: where
                for key, where in (books.holds | later).items()
                if key in self.fresh or (key in books.asks and books.asks[key].required_node) or key not in books.claims
            }
            yield books.seen({key: at for key, at in books.claims.items() if key in first}, first)
        more = {key: at for key, at in new.items() if key != ask.key}
        if more or later.items() - books.holds.items():
            yield books.seen(books.claims | more, books.holds | later)

    def judge_guarantee(self, ask: Task, node: str, victims: Victims, after: Books) -> None:
        """A decision passes if it is right by some reading of the rules."""
        if self.world.monitor:
            self.complain(f"other kind: {ask.key} preempts although the monitor does that here")
        if self.world.off:
            self.complain(f"switched off: {ask.key} preempts although that is not among the policies")
        self.judge_limit(ask, victims)
        readings = [(books, reading) for books in self.variants(ask, after) for reading in guarantee.READINGS]
        found = [guarantee.complaints(books, ask, node, victims, reading=reading) for books, reading in readings]
        if all(found):
            for said in min(found, key=len):
                self.complain(f"{said} [{ask.key} {dict(ask.amounts)} of {ask.queue} on {node}]")
        worst = max((task.reluctance() for task, _ in victims), default=0)
        if worst and not min(found, key=len):
            milder = [
                guarantee.lawful_plan(books, ask, reading=reading, milder_than=worst) for books, reading in readings
            ]
            if all(milder) and milder[0] is not None:
                instead = ", ".join(task.key for task, _ in milder[0][1])
                self.complain(f"milder: {ask.key} could have had {instead} on {milder[0][0]}")
        for victim, _ in victims:
            if guarantee.takes_back(self.books, ask, node, victims, victim):
                self.complain(f"takes back: {victim.key}, asking again, could take {ask.key} in its turn")
        books, reading = readings[found.index(min(found, key=len))]
        entitled = guarantee.entitlement(books, ask)
        self.count("guarantee", victims, guarantee.needs_on(books, ask, entitled, node, reading=reading))

    def judge_limit(self, ask: Task, victims: Victims) -> None:
        """Within a second asks preempt for no more than a part of the cluster, but for what the last one is too large.

        An ask counts if it has victims; where there is nobody to go the limit may count it or not.
        """
        if not victims:
            return
        second, served = self.served
        if second != self.now_s:
            served = {}
        cluster = self.books.nodes.values()
        for t, amount in ask.amounts.items():
            most = self.world.limit * sum(node.capacity.get(t, 0) for node in cluster)
            if amount and served.get(t, 0) >= most:
                self.complain(f"limit: {ask.key} preempts after {served.get(t, 0)} of {most:g} {t} within a second")
        self.served = self.now_s, {t: served.get(t, 0) + ask.amounts.get(t, 0) for t in {*served, *ask.amounts}}

    def judge_required(self, ask: Task, victims: Victims, after: Books) -> None:
        """As for guarantees, with the rules of required nodes."""
        readings = [(books, reading) for books in self.variants(ask, after) for reading in required_node.READINGS]
        found = [required_node.complaints(books, ask, victims, reading=reading) for books, reading in readings]
        if all(found):
            for said in min(found, key=len):
                self.complain(f"{said} [{ask.key} {dict(ask.amounts)} on {ask.required_node}]")
        worst = max((task.reluctance() for task, _ in victims), default=0)
        if worst and all(
            required_node.lawful_plan(books, ask, reading=reading, milder_than=worst) for books, reading in readings
        ):
            self.complain(f"milder: {ask.key} could have had more willing victims on {ask.required_node}")
        books, reading = readings[found.index(min(found, key=len))]
        self.count("required node", victims, required_node.needs_on(books, ask, reading=reading))

    def judge_quota(self, decision: PreemptionDecided, victims: Victims) -> None:
        queue = decision.queue
        for said in lowered_max.complaints(self.books, queue, str(decision.outcome), victims):
            self.complain(said)
        better = lowered_max.better_choice(self.books, queue, victims)
        if better is not None:
            instead = ", ".join(task.key for task, _ in better)
            self.complain(f"better choice: {instead} would leave less above the max of {queue}")
        over = lowered_max.excess(self.books, queue)
        needs = [Need(t, min(amount, total(victims, t)), queue=queue) for t, amount in over.items()]
        self.count("lowered max", victims, needs)

    def heard_monitor(self, decision: PreemptionDecided) -> None:
        """Notices are remembered, kills judged."""
        keys = [victim.key for victim in decision.victims]
        if decision.outcome is Outcome.TRIGGERED:
            self.decided += 1
            if not self.round:
                self.before_round = self.books.copied()
            for key in keys:
                self.told(key, "")
                self.round.append(key)
                if not self.watch.is_told(key, self.now_s):
                    self.complain(f"notice: {key} is taken without one that is old enough")
        elif decision.outcome is Outcome.NOTIFIED:
            self.say(f"monitor gives notice to {', '.join(keys)} of {decision.queue}")
        self.watch.follow(str(decision.outcome), keys, self.now_s)

    def judge_round(self) -> None:
        """Everybody whom the monitor takes at this second is judged together."""
        keys, self.round = self.round, []
        if not keys:
            return
        before = self.before_round
        books = replace(before, leaving={k: ask for k, ask in before.leaving.items() if k not in keys})
        victims = [books.running[key] for key in keys]
        self.say("monitor takes " + ", ".join(f"{task.key} {dict(task.amounts)} on {node}" for task, node in victims))
        served = [
            ask
            for key, ask in books.asks.items()
            if key not in self.books.asks or (key in self.books.claims and key not in books.claims)
        ]
        for said in monitor.complaints(books, victims, served):
            self.complain(said)
        needs = [Need(t, amount) for t, amount in monitor.served(books, victims, served).items()]
        self.count("monitor", victims, needs)

    def count(self, kind: str, victims: Victims, needs: Iterable[Need]) -> None:
        tally = self.tallies.setdefault(kind, Tally())
        needed = wanted(needs)
        tally.decisions += 1
        tally.victims += len(victims)
        tally.needed += sum(needed.values())
        # Whoever goes for nobody frees all that it holds for nothing.
        types = needed or {t for task, _ in victims for t in task.amounts}
        tally.freed += sum(total(victims, t) for t in types)

    # Judging what did not happen

    def judge_waiting(self) -> None:
        """Nobody whose victims have all left waits on.

        Unless the node was needed for a task that runs nowhere else, or a max was lowered below the ask after its
        victims had been told: it waits for room under that max, as everybody does.
        """
        for key, since in list(self.free_since.items()):
            ask = self.books.asks.get(key)
            if ask is not None and key in self.outgrown and not self.is_within_lowered(ask):
                self.free_since[key] = self.now_s  # What it waits for now is room under the max.
                continue
            if self.now_s - since <= PLACED_WITHIN_S:
                continue
            del self.free_since[key]
            if ask is None or key in self.overtaken:
                continue
            meant_for = self.meant_for.get(key, "")
            if any(on == meant_for and self.books.asks[other].required_node for other, on in self.books.holds.items()):
                continue
            self.complain(f"starved: {key} is not placed {self.now_s - since} s after its victims left")

    def is_within_lowered(self, ask: Task) -> bool:
        """Whether every lowered max on the path of *ask* has room for it."""
        books = self.books
        kept = {p: q if q.lowered is not None else replace(q, maximum={}) for p, q in books.queues.items()}
        return admits(replace(books, queues=kept), ask, books.used)

    def judge_quiet(self) -> None:
        """Nothing happens any more: nobody may wait who could be helped."""
        books = self.books
        for ask in books.asks.values():
            if self.outcomes.get(ask.key) in BOUNDED:
                continue
            waits = f"{ask.key} {dict(ask.amounts)} of {ask.queue}"
            if self.has_room(ask):
                self.complain(f"room: {waits} waits although it has room")
            elif ask.required_node:
                self.judge_quiet_required(ask, waits)
            elif ask.key in books.claims:
                self.complain(f"starved: {waits} has preempted and waits for nobody")
            elif (not self.world.monitor and not self.world.off and self.world.limit) or (
                not self.world.gentle and self.world.monitor and monitor.has_to_act_for(books, ask)
            ):
                self.judge_quiet_guarantee(ask, waits)
        self.judge_first()
        for path, queue in books.queues.items():
            if queue.enforced and queue.lowered is not None and lowered_max.excess(books, path):
                better = lowered_max.better_choice(books, path, ())
                if better is not None:
                    instead = ", ".join(task.key for task, _ in better)
                    self.complain(f"max not enforced: {path} is above its max, and {instead} could go")

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

    def promised(self) -> Books:
        """The books with all holds as claims too: what is held by age may count as claimed."""
        later = {key: 10**6 + at for at, key in enumerate(self.books.holds) if key not in self.books.claims}
        return self.books.seen(later | self.books.claims, self.books.holds)

    def has_room(self, ask: Task) -> bool:
        """Whether the max of every queue on the path and some open node have room for *ask* that nobody holds."""
        books = self.promised()
        if not admits(books, ask, lambda path, t: books.used(path, t) + books.claimed(path, t, but=ask.key)):
            return False
        return any(
            not node.drained
            and ask.required_node in ("", name)
            and fits(ask.amounts, lambda t, name=name: books.open(name, t, ask.key))
            for name, node in books.nodes.items()
        )

    def judge_quiet_required(self, ask: Task, waits: str) -> None:
        node = self.books.nodes.get(ask.required_node)
        if node is None or node.drained or ask.key in self.books.claims:
            return
        books = self.promised()
        if not admits(books, ask, lambda path, t: books.used(path, t) + books.claimed(path, t, but=ask.key)):
            return
        plans = [
            required_node.lawful_plan(b, ask, reading=o) for b in (self.books, books) for o in required_node.READINGS
        ]
        if all(plans) and plans[0] is not None:
            instead = ", ".join(task.key for task, _ in plans[0])
            self.complain(f"missed: {waits} waits, and {instead} could leave {ask.required_node}")

    def judge_quiet_guarantee(self, ask: Task, waits: str) -> None:
        plans = [
            guarantee.lawful_plan(books, ask, reading=reading)
            for books in (self.books, self.promised())
            for reading in guarantee.READINGS
        ]
        if all(plans) and plans[0] is not None:
            node, victims = plans[0]
            instead = ", ".join(task.key for task, _ in victims)
            self.complain(f"missed: {waits} waits, and {instead} could leave for {node}")

    def judge_first(self) -> None:
        """Somebody who waits for room on nodes alone gets an amount held for it by age."""
        books = self.promised()
        if books.holds:
            return
        for ask in books.asks.values():
            if ask.required_node or not admits(books, ask, books.used):
                continue
            if any(guarantee.is_usable(books, ask, name) for name in books.nodes):
                self.complain(f"first in line: nothing is held for {ask.key}, nor for anybody")
                return


def _resources(amounts: Iterable[tuple[str, int]] | object) -> Resources:
    return Resources(dict(amounts))  # type: ignore[call-overload]


def category(complaint: str) -> str:
    """The rule that a complaint is about: what it says before the colon."""
    return complaint.partition(":")[0]


def fails_with(rule: str) -> Callable[[World], bool]:
    """Whether a world still breaks *rule*."""

    def fails(world: World) -> bool:
        try:
            return any(category(said) == rule for said in Run(world).play().complaints)
        except (AssertionError, KeyError, IndexError, ValueError, StopIteration):
            return rule == "crash"

    return fails


@dataclass
class Figures:
    """What came of many clusters."""

    trees: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    """How many clusters broke each rule."""
    examples: dict[str, list[int]] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)

    def take_in(self, seed: int) -> Run:
        run = Run(random_world(seed)).play()
        self.trees += 1
        for rule in {category(said) for said in run.complaints}:
            self.broken[rule] += 1
            self.examples.setdefault(rule, []).append(seed)
        for kind, tally in run.tallies.items():
            self.tallies.setdefault(kind, Tally()).add(tally)
        return run

    def __str__(self) -> str:
        lines = [f"{self.trees:,} clusters"]
        for kind, tally in sorted(self.tallies.items()):
            factor = f"{tally.freed / tally.needed:.3f}" if tally.needed else "-"
            lines.append(
                f"  {kind}: {tally.decisions:,} decisions, {tally.victims:,} victims, "
                f"freed {tally.freed:,} of {tally.needed:,} needed, factor {factor}"
            )
        for rule, count in self.broken.most_common():
            seeds = ", ".join(map(str, self.examples[rule][:6]))
            lines.append(f"  {count:>5,} of {self.trees:,} clusters: {rule} (seeds {seeds})")
        if not self.broken:
            lines.append("  no rule was broken")
        return "\n".join(lines)


def example(seed: int, rule: str) -> str:
    """The cluster of *seed* that breaks *rule*, made as small as it gets, with what happens in it."""
    small = shrunk(random_world(seed), fails_with(rule))
    lines = [f"# seed {seed}: {rule}", written(small), "# what happens, by second:"]
    Run(small, trace=lambda line: lines.append(f"# {line}")).play()
    return "\n".join(lines)


def main() -> None:
    """Print the figures of many clusters, or one cluster in full."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.preemption_rules", description=__doc__)
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster; the others count on from it")
    parser.add_argument("--show", nargs="*", help="rules to show a small example of; with no name: of all")
    parser.add_argument("--world", type=int, help="play the cluster of this seed alone, and say what happens")
    options = parser.parse_args()
    if options.world is not None:
        world = random_world(options.world)
        print(written(world))
        run = Run(world, trace=print).play()
        print("\n".join(run.complaints) or "no rule was broken")
        return
    began = time.monotonic()
    figures = Figures()
    for seed in range(options.seed, options.seed + options.trees):
        try:
            figures.take_in(seed)
        except Exception:
            print(f"seed {seed}")
            raise
    print(figures)
    print(f"  {time.monotonic() - began:.1f} s, seeds {options.seed} to {options.seed + options.trees - 1}")
    if options.show is not None:
        for rule in options.show or list(figures.broken):
            for seed in figures.examples.get(rule, [])[:1]:
                print(f"\n{example(seed, rule)}")


if __name__ == "__main__":
    main()
