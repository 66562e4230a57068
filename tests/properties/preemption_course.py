"""What is known of a random cluster while the engine is driven through it, and what broke which rule so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kornel.core.domain.reasons import Outcome
from tests.oracles.rules.world import Books, World
from tests.properties.rules_worlds import START_S

SECOND: Final = 10**9


@dataclass
class Course:
    """One cluster, as it has become. ``complaints``: what broke which rule, ``rule: what``, with the second of it."""

    world: World
    trace: Callable[[str], None] | None = None
    complaints: list[str] = field(default_factory=list)
    now_s: int = START_S

    def __post_init__(self) -> None:
        self.books = Books(
            {queue.path: queue for queue in self.world.queues},
            {node.name: node for node in self.world.nodes},
            strict=self.world.strict,
        )
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
        self.passed_on: set[str] = set()
        """Those of them of whose room an ask of the leaf that comes before them uses a part: the rest is only saved."""
        self.used_before: dict[str, dict[tuple[str, str], int]] = {}
        """For each such ask, what the queues of its path used when it preempted."""
        self.fresh: set[str] = set()
        """Asks that have preempted in the effects that are looked at."""
        self.decided = 0
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

    def promised(self) -> Books:
        """The books with all holds as claims too: what is held by age may count as claimed."""
        later = {key: 10**6 + at for at, key in enumerate(self.books.holds) if key not in self.books.claims}
        return self.books.seen(later | self.books.claims, self.books.holds)
