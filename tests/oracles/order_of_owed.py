"""Who preempts next of all that are owed, from the words of preemption.md: B.1 ("who is first"), F5, G.1 and G.2.

It knows nothing of the engine: no groups, heaps or rounds, and everything is worked out again for every choice. All
asks and victims have size 1, all victims may go, and no room comes free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class OwedAsk:
    key: str
    application: int
    priority: int
    number: int
    tried: bool = False
    claims: bool = False


@dataclass(eq=False)
class OwedQueue:
    name: str
    above: OwedQueue | None = None
    guaranteed: int = 0
    most: int = 0
    """Its max; 0: none."""
    offset: int = 0
    fence: bool = False
    prioritised: bool = True
    runs: int = 0
    """What runs in a leaf."""
    below: list[OwedQueue] = field(default_factory=list)
    asks: list[OwedAsk] = field(default_factory=list)

    def path(self) -> list[OwedQueue]:
        return [self, *(self.above.path() if self.above else [])]

    def leaves(self) -> Iterator[OwedQueue]:
        if not self.below:
            yield self
        for queue in self.below:
            yield from queue.leaves()

    def all_asks(self) -> list[OwedAsk]:
        return [ask for leaf in self.leaves() for ask in leaf.asks]

    def left(self) -> list[OwedAsk]:
        return [ask for ask in self.all_asks() if not ask.tried]

    def held(self) -> int:
        """Used and claimed."""
        return sum(leaf.runs for leaf in self.leaves()) + sum(ask.claims for ask in self.all_asks())

    def counted(self) -> int:
        """The guarantee that it declares, else the sum of those of its children, theirs likewise."""
        return self.guaranteed or sum(queue.counted() for queue in self.below)

    def share(self, cluster: int) -> float:
        """Of its guarantee; where nobody declares one, 1 + what it holds / the nearest max."""
        if self.counted():
            return self.held() / self.counted()
        return 1 + self.held() / next((queue.most for queue in self.path() if queue.most), cluster)

    def rank(self) -> int:
        """The highest priority of what is left to try, as others see it."""
        if self.fence:
            return self.offset
        own = [ask.priority for ask in self.asks if not ask.tried]
        return max([*own, *(queue.rank() for queue in self.below if queue.left())]) + self.offset


def serve_owed(root: OwedQueue, victims: int, cluster: int) -> list[str]:
    """The asks that preempt, in order, until all were tried."""
    served: list[str] = []
    while root.left():
        queue = root
        while queue.below:
            parent = queue
            queue = min(
                (child for child in parent.below if child.left()),
                key=lambda child: (
                    -child.rank() if parent.prioritised else 0,
                    child.share(cluster),
                    -len(child.all_asks()),
                    child.name,
                ),
            )
        left = [ask for ask in queue.asks if not ask.tried]
        best = {ask.application: max(a.priority for a in left if a.application == ask.application) for ask in left}
        ask = min(
            left,
            key=lambda ask: (
                -best[ask.application] if queue.prioritised else 0, ask.application, -ask.priority, ask.number,
            ),
        )  # fmt: skip
        ask.tried = True
        owing = next((above for above in queue.path() if above.guaranteed), None)
        if owing is not None and owing.held() < owing.guaranteed and len(served) < victims:
            ask.claims = True
            served.append(ask.key)
    return served
