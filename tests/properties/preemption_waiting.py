"""Judges what did not happen in a random cluster: nobody may wait who has room, or who could be helped."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kornel.core.domain.reasons import Outcome
from tests.oracles.rules import guarantee, lowered_max, monitor, required_node
from tests.oracles.rules.arithmetic import adjusted, admits, fits
from tests.oracles.rules.world import Amounts, Books, Task, ancestors, lowest_common
from tests.properties.preemption_course import Course
from tests.properties.rules_worlds import START_S

PLACED_WITHIN_S: Final = 5
SAVES_AFTER_S: Final = 2
BOUNDED: Final = {Outcome.BUDGET_SPENT, Outcome.COOLING_DOWN, Outcome.LOOP}


class WaitingJudge:
    """Complains of those who wait and should not."""

    def __init__(self, course: Course) -> None:
        self.course = course

    def judge_waiting(self) -> None:
        """Nobody whose victims have all left waits on.

        Unless the node was needed for a task that runs nowhere else, or was drained, which ends claims there, or a max
        was lowered below the ask after its victims had been told: it waits for room under that max, as everybody does.
        """
        course, books = self.course, self.course.books
        for key, since in list(course.free_since.items()):
            ask = books.asks.get(key)
            if ask is not None and key in course.outgrown and not self.is_within_lowered(ask):
                course.free_since[key] = course.now_s  # What it waits for now is room under the max.
                continue
            if course.now_s - since <= PLACED_WITHIN_S:
                continue
            del course.free_since[key]
            if ask is None or key in course.overtaken:
                continue
            meant_for = course.meant_for.get(key, "")
            if any(on == meant_for and books.asks[other].required_node for other, on in books.holds.items()):
                continue
            drained = meant_for in books.nodes and books.nodes[meant_for].drained
            if key not in books.claims and (drained or key in course.passed_on):
                continue
            course.complain(f"starved: {key} is not placed {course.now_s - since} s after its victims left")

    def is_within_lowered(self, ask: Task) -> bool:
        """Whether every lowered max on the path of *ask* has room for it."""
        books = self.course.books
        kept = {p: q if q.lowered is not None else replace(q, maximum={}) for p, q in books.queues.items()}
        return admits(replace(books, queues=kept), ask, books.used)

    def judge_quiet(self) -> None:
        """Nothing happens any more: nobody may wait who could be helped."""
        books = self.course.books
        for ask in books.asks.values():
            if self.course.outcomes.get(ask.key) in BOUNDED:
                continue
            waits = f"{ask.key} {dict(ask.amounts)} of {ask.queue}"
            if ask.key not in books.claims and self.is_kept_below(ask):
                continue
            if self.has_room(ask):
                self.course.complain(f"room: {waits} waits although it has room")
            elif ask.required_node:
                self.judge_quiet_required(ask, waits)
            elif ask.key in books.claims:
                self.course.complain(f"starved: {waits} has preempted and waits for nobody")
            elif (not self.course.world.monitor and not self.course.world.off and self.course.world.limit) or (
                not self.course.world.gentle and self.course.world.monitor and monitor.has_to_act_for(books, ask)
            ):
                self.judge_quiet_guarantee(ask, waits)
        self.judge_first()
        for path, queue in books.queues.items():
            if queue.enforced and queue.lowered is not None and lowered_max.excess(books, path):
                better = lowered_max.better_choice(books, path, ())
                if better is not None:
                    instead = ", ".join(task.key for task, _ in better)
                    self.course.complain(f"max not enforced: {path} is above its max, and {instead} could go")

    def has_room(self, ask: Task) -> bool:
        """Whether the max of every queue on the path and some open node have room for *ask* that nobody holds."""
        books = self.course.promised()
        if not admits(books, ask, lambda path, t: books.used(path, t) + books.claimed(path, t, but=ask.key)):
            return False
        return any(
            not node.drained
            and ask.required_node in ("", name)
            and fits(ask.amounts, lambda t, name=name: books.open(name, t, ask.key))
            for name, node in books.nodes.items()
        )

    def is_kept_below(self, ask: Task) -> bool:
        """Whether a max on the path of *ask* has no room for it beside what is saved there for somebody who stands
        before it in the line (preemption.md B.7, "Below limits")."""
        books = self.course.promised()
        for holder in books.asks.values():
            if holder.key == ask.key or not self.may_save_below(books, holder) or not stands_before(books, holder, ask):
                continue
            if guarantee.is_lent(books, holder, ask):
                continue
            for path in refusing(books, holder):
                kept = {t: amount + holder.amounts.get(t, 0) for t, amount in ask.amounts.items() if amount}
                if path in ancestors(ask.queue) and exceeds(books, path, kept, but=ask.key):
                    return True
        return False

    def may_save_below(self, books: Books, holder: Task) -> bool:
        """Whether *holder* is old enough, and could be placed once everybody has ended below the maxima."""
        if holder.key in books.claims or self.course.now_s - max(holder.created, START_S) <= SAVES_AFTER_S:
            return False
        if any(
            amount > books.queues[path].maximum.get(t, amount)
            for path in ancestors(holder.queue)
            for t, amount in holder.amounts.items()
        ):
            return False
        return any(
            guarantee.is_usable(books, holder, name) for name in books.nodes if holder.required_node in ("", name)
        )

    def judge_quiet_required(self, ask: Task, waits: str) -> None:
        node = self.course.books.nodes.get(ask.required_node)
        if node is None or node.drained or ask.key in self.course.books.claims:
            return
        books = self.course.promised()
        if not admits(books, ask, lambda path, t: books.used(path, t) + books.claimed(path, t, but=ask.key)):
            return
        plans = [
            required_node.lawful_plan(b, ask, reading=o)
            for b in (self.course.books, books)
            for o in required_node.READINGS
        ]
        if all(plans) and plans[0] is not None:
            instead = ", ".join(task.key for task, _ in plans[0])
            self.course.complain(f"missed: {waits} waits, and {instead} could leave {ask.required_node}")

    def judge_quiet_guarantee(self, ask: Task, waits: str) -> None:
        plans = [
            guarantee.lawful_plan(books, ask, reading=reading)
            for books in (self.course.books, self.course.promised())
            for reading in guarantee.READINGS
        ]
        if all(plans) and plans[0] is not None:
            node, victims = plans[0]
            instead = ", ".join(task.key for task, _ in victims)
            self.course.complain(f"missed: {waits} waits, and {instead} could leave for {node}")

    def judge_first(self) -> None:
        """Somebody who waits for room on nodes alone gets an amount held for it by age."""
        books = self.course.promised()
        if books.holds:
            return
        for ask in books.asks.values():
            if ask.required_node or not admits(books, ask, books.used) or self.is_kept_below(ask):
                continue
            if any(could_hold(books, ask, name) for name in books.nodes):
                self.course.complain(f"first in line: nothing is held for {ask.key}, nor for anybody")
                return


def could_hold(books: Books, ask: Task, node: str) -> bool:
    """Whether *node*, which is open, has room for *ask* once everybody has ended who may run elsewhere."""
    staying = [task for task, where in books.running.values() if where == node and task.required_node]
    return guarantee.is_usable(books, ask, node) and all(
        amount <= books.nodes[node].capacity[t] - sum(task.amounts.get(t, 0) for task in staying)
        for t, amount in ask.amounts.items()
        if amount
    )


def refusing(books: Books, ask: Task) -> list[str]:
    """The queues on the path of *ask* whose max has no room for it."""
    return [path for path in ancestors(ask.queue) if exceeds(books, path, ask.amounts, but=ask.key)]


def exceeds(books: Books, path: str, amounts: Amounts, *, but: str) -> bool:
    """Whether *amounts* carry the queue at *path* above its max, beside what others than *but* have claimed there."""
    maximum = books.queues[path].maximum
    return any(
        amount and t in maximum and books.used(path, t) + books.claimed(path, t, but=but) + amount > maximum[t]
        for t, amount in amounts.items()
    )


def stands_before(books: Books, ask: Task, other: Task) -> bool:
    """Whether *ask* comes before *other* where their ways to the root meet, or has come earlier as its equal."""
    meeting = lowest_common(ask.queue, other.queue)
    ranks = [adjusted(books, one, meeting) for one in (ask, other)]
    if ranks[0] != ranks[1]:
        return ranks[0] > ranks[1]
    came = [(one.created, list(books.asks).index(one.key)) for one in (ask, other)]
    return came[0] < came[1]
