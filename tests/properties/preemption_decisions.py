"""Judges each decision to preempt by the second implementation of the rules, and adds up what was freed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kornel.core.domain.effects import PreemptionDecided
from kornel.core.domain.reasons import Outcome
from tests.oracles.rules import guarantee, lowered_max, monitor, required_node
from tests.oracles.rules.arithmetic import Need, Victims, total, wanted
from tests.oracles.rules.world import Books, Task
from tests.properties.preemption_course import Course


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


class DecisionJudge:
    """Complains of decisions that no reading of the rules allows. ``tallies``: what they freed, by kind."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.tallies: dict[str, Tally] = {}
        self.watch = monitor.Watch()
        self.served: tuple[int, dict[str, int]] = (0, {})
        """At which second asks last preempted, and for how much by then."""

    def variants(self, ask: Task, after: Books) -> Iterator[Books]:
        """The books with the claims and holds that may have been in force when *ask* was looked at, the likely first.

        What the engine dropped or took up between two looks at it was there or not: either may be so.
        """
        books = self.course.books
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
                if key in self.course.fresh
                or (key in books.asks and books.asks[key].required_node)
                or key not in books.claims
            }
            yield books.seen({key: at for key, at in books.claims.items() if key in first}, first)
        more = {key: at for key, at in new.items() if key != ask.key}
        if more or later.items() - books.holds.items():
            yield books.seen(books.claims | more, books.holds | later)

    def judge_guarantee(self, ask: Task, node: str, victims: Victims, after: Books) -> None:
        """A decision passes if it is right by some reading of the rules."""
        if self.course.world.monitor:
            self.course.complain(f"other kind: {ask.key} preempts although the monitor does that here")
        if self.course.world.off:
            self.course.complain(f"switched off: {ask.key} preempts although that is not among the policies")
        self.judge_limit(ask, victims)
        readings = [(books, reading) for books in self.variants(ask, after) for reading in guarantee.READINGS]
        found = [guarantee.complaints(books, ask, node, victims, reading=reading) for books, reading in readings]
        if all(found):
            for said in min(found, key=len):
                self.course.complain(f"{said} [{ask.key} {dict(ask.amounts)} of {ask.queue} on {node}]")
        worst = max((task.reluctance() for task, _ in victims), default=0)
        if worst and not min(found, key=len):
            milder = [
                guarantee.lawful_plan(books, ask, reading=reading, milder_than=worst) for books, reading in readings
            ]
            if all(milder) and milder[0] is not None:
                instead = ", ".join(task.key for task, _ in milder[0][1])
                self.course.complain(f"milder: {ask.key} could have had {instead} on {milder[0][0]}")
        for victim, _ in victims:
            if guarantee.takes_back(self.course.books, ask, node, victims, victim):
                self.course.complain(f"takes back: {victim.key}, asking again, could take {ask.key} in its turn")
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
        if second != self.course.now_s:
            served = {}
        cluster = self.course.books.nodes.values()
        for t, amount in ask.amounts.items():
            most = self.course.world.limit * sum(node.capacity.get(t, 0) for node in cluster)
            if amount and served.get(t, 0) >= most:
                self.course.complain(
                    f"limit: {ask.key} preempts after {served.get(t, 0)} of {most:g} {t} within a second"
                )
        self.served = self.course.now_s, {t: served.get(t, 0) + ask.amounts.get(t, 0) for t in {*served, *ask.amounts}}

    def judge_required(self, ask: Task, victims: Victims, after: Books) -> None:
        """As for guarantees, with the rules of required nodes."""
        readings = [(books, reading) for books in self.variants(ask, after) for reading in required_node.READINGS]
        found = [required_node.complaints(books, ask, victims, reading=reading) for books, reading in readings]
        if all(found):
            for said in min(found, key=len):
                self.course.complain(f"{said} [{ask.key} {dict(ask.amounts)} on {ask.required_node}]")
        worst = max((task.reluctance() for task, _ in victims), default=0)
        if worst and all(
            required_node.lawful_plan(books, ask, reading=reading, milder_than=worst) for books, reading in readings
        ):
            self.course.complain(f"milder: {ask.key} could have had more willing victims on {ask.required_node}")
        books, reading = readings[found.index(min(found, key=len))]
        self.count("required node", victims, required_node.needs_on(books, ask, reading=reading))

    def judge_quota(self, decision: PreemptionDecided, victims: Victims) -> None:
        queue = decision.queue
        for said in lowered_max.complaints(self.course.books, queue, str(decision.outcome), victims):
            self.course.complain(said)
        better = lowered_max.better_choice(self.course.books, queue, victims)
        if better is not None:
            instead = ", ".join(task.key for task, _ in better)
            self.course.complain(f"better choice: {instead} would leave less above the max of {queue}")
        over = lowered_max.excess(self.course.books, queue)
        needs = [Need(t, min(amount, total(victims, t)), queue=queue) for t, amount in over.items()]
        self.count("lowered max", victims, needs)

    def judge_notices(self, outcome: Outcome, keys: list[str]) -> None:
        """Remembers the notices of the monitor, and complains if it takes somebody without one that is old enough."""
        if outcome is Outcome.TRIGGERED:
            for key in keys:
                if not self.watch.is_told(key, self.course.now_s):
                    self.course.complain(f"notice: {key} is taken without one that is old enough")
        self.watch.follow(str(outcome), keys, self.course.books, self.course.now_s)

    def judge_round(self, before: Books, keys: list[str]) -> None:
        """Everybody whom the monitor takes at this second is judged together, by the books *before* it began."""
        books = replace(before, leaving={k: ask for k, ask in before.leaving.items() if k not in keys})
        victims = [books.running[key] for key in keys]
        self.course.say(
            "monitor takes " + ", ".join(f"{task.key} {dict(task.amounts)} on {node}" for task, node in victims)
        )
        served = [
            ask
            for key, ask in books.asks.items()
            if key not in self.course.books.asks or (key in self.course.books.claims and key not in books.claims)
        ]
        for said in monitor.complaints(books, victims, served):
            self.course.complain(said)
        # At its own pace, a round may take small ones only. For several asks, who goes for whom is not known.
        chosen = {id(self.watch.then.get(key)): self.watch.then.get(key) for key in keys}
        then = next(iter(chosen.values()))
        if (
            len(served) == len(chosen) == len({node for _, node in victims}) == 1
            and then
            and not self.course.world.gentle
        ):
            milder = monitor.milder_choice(then, victims, served[0])
            if milder is not None:
                self.course.complain(
                    f"milder: {', '.join(task.key for task, _ in milder)} would do for {served[0].key}"
                )
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
