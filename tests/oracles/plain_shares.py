"""What originators and users may hold in a leaf, as the documentation of YARN says it in words, and docs/limits.md.

- "minimum-user-limit-percent": with two users who ask, none gets more than 50 percent of the queue, with three none
  more than 33, down to the percentage; idle room beyond the capacity is for all. Who holds nothing gets a first task.
- "user-limit-factor": a user never gets more than the capacity times the factor, however idle the cluster is.
- "maximum-am-resource-percent": what application masters hold together; one of them may always run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

Amounts = Mapping[str, int]


@dataclass
class Task:
    """A task of *user*, which waits or runs."""

    user: str
    amounts: dict[str, int]
    originator: bool = False
    runs: bool = False


@dataclass
class Leaf:
    """A leaf with what its properties say, and its tasks."""

    guaranteed: Amounts
    most: Amounts
    percent: int = 100
    factor: Fraction | None = None
    originators: Fraction | Amounts | None = None
    tasks: dict[str, Task] = field(default_factory=dict)

    def held(self, kind: str, user: str = "", *, originators: bool = False) -> int:
        """What runs of *kind*: of one user, or of all."""
        tasks = [task for task in self.tasks.values() if task.runs and (not originators or task.originator)]
        return sum(task.amounts.get(kind, 0) for task in tasks if user in ("", task.user))

    def refusal(self, name: str) -> str:
        """Which limit refuses the task *name* now; empty: none does."""
        task = self.tasks[name]
        users = {each.user for each in self.tasks.values() if not each.runs} | {task.user}
        for kind, amount in task.amounts.items():
            if not amount:
                continue
            own, total = self.held(kind, task.user), self.held(kind)
            capacity = self.guaranteed.get(kind, self.most[kind])
            if total + amount > self.most[kind]:
                return f"max {kind}"
            if self.factor is not None and own + amount > self.factor * capacity:
                return f"factor {kind}"
            # Two users: a half; three: a third; and so on, but never less than the percentage.
            part = max(Fraction(100, len(users)), Fraction(self.percent))
            within = (own + amount - 1) * 100 < part * capacity  # A part of one unit counts as one.
            idle = total + amount > capacity and own * 100 <= part * total
            if own and not within and not idle and part < 100:
                return f"share {kind}"
        running = [each for each in self.tasks.values() if each.runs and each.originator and any(each.amounts.values())]
        if task.originator and running and self.originators is not None:
            for kind, amount in task.amounts.items():
                if not amount:
                    continue  # What is not asked for is never in the way, however much of it is held.
                if isinstance(self.originators, Fraction):
                    most: Fraction | int | None = self.originators * self.most[kind]
                else:
                    most = self.originators.get(kind)
                if most is not None and self.held(kind, originators=True) + amount > most:
                    return f"originators {kind}"
        return ""
