"""Whoever is owed room gets it within a bound of slices, however many sizes, queues and nodes there are.

Random clusters in which every search takes several steps, with more different questions than are kept under way at a
time. The plain rules judge each decision and what is left at the end (``preemption_run``); the number of slices within
a second is bounded by the work.
"""

from __future__ import annotations

import random
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.preemption.guarantee.search import prospects
from kornel.core.state.options import EngineOptions
from tests.examples import scale_examples
from tests.oracles.rules.world import Node, Queue, Task, World
from tests.owed_cluster import OwedCluster, slices_for
from tests.properties import preemption_run
from tests.properties.preemption_run import Run
from tests.properties.rules_worlds import START_S, configuration

STEP: Final = 1
"""The number of nodes that a search looks at in one step here."""
CAPACITY: Final = 12
BUDGET: Final = 250


class BoundedRun(Run):
    """A run whose slices within a second are bounded by the work: every ask may ask its question anew, in steps.

    Nearly every node may be held by age, because it is asks with a reservation that are served in turns.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.engine = Engine(EngineOptions(reservation_percent=90))

    def run_slices(self) -> bool:
        """Runs slices until nothing is left to do at this second. Returns whether it mattered."""
        heard = False
        asks = len(self.books.asks)
        left = 50 + 4 * asks + 2 * asks * len(self.world.nodes) // STEP
        unfinished = True
        while unfinished:
            result = self.engine.cycle(self.now_ns, BUDGET)
            heard = self.hear(result.effects) or heard
            wakeup_ns = self.engine.next_wakeup_ns()
            unfinished = result.more or (wakeup_ns is not None and wakeup_ns <= self.now_ns)
            left -= 1
            assert left >= 0, f"{asks} asks: no end at {self.now_s - START_S} s"
            assert not result.standing, result.standing
        self.refresh()
        return heard


def crowded_world(seed: int) -> World:
    """Full nodes, and asks of many sizes in many queues that are owed room for all of them."""
    dice = random.Random(seed)
    nodes = tuple(Node(f"n{at:03}", {"vcore": CAPACITY}) for at in range(dice.randint(20, 60)))
    running = []
    for node in nodes:
        free = CAPACITY
        while free:
            amount = min(free, dice.choice((1, 4, 6, 12, 12)))
            free -= amount
            application = f"root.low-{dice.choice('xy')}"
            task = Task(f"v{len(running):03}", application, "root.low", {"vcore": amount}, dice.choice((0, 0, -1, 5)))
            running.append((task, node.name))
    owed = [f"root.o{at}" for at in range(dice.randint(1, 12))]
    guaranteed = {"vcore": CAPACITY * len(nodes) // len(owed)}
    queues = (Queue("root"), Queue("root.low"), *(Queue(path, guaranteed) for path in owed))
    asks = []
    for at in range(dice.randint(10, 30)):
        path = dice.choice(owed)
        amounts, priority = {"vcore": dice.randint(1, CAPACITY)}, dice.choice((0, 0, 0, 1, 5, -1))
        created = START_S + dice.choice((0, 0, 0, 1, 9))
        asks.append(Task(f"a{at:02}", f"{path}-x", path, amounts, priority, created=created))
    withdrawn = tuple((dice.randint(1, 15), dice.choice(asks).key) for _ in range(dice.choice((0, 0, 3))))
    return World(queues, nodes, tuple(running), tuple(asks), leave_after=dice.choice((0, 0, 1)), withdrawn=withdrawn)


@settings(max_examples=scale_examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), delay_s=st.sampled_from((1, 10)))
@example(seed=1, delay_s=10)
def test_everybody_who_is_owed_room_gets_it(seed: int, delay_s: int) -> None:
    """No lawful plan is missed, the slices of each second come to an end, and then the engine is quiet. With the longer
    delay, asks hold room by their age before they may preempt."""

    def delayed(world: World, *, lowered: bool = False) -> str:
        text = configuration(world, lowered=lowered)
        return text.replace('"preemption.delay": "1s"', f'"preemption.delay": "{delay_s}s"')

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prospects, "NODES_AT_ONCE", STEP)
        patched.setattr(preemption_run, "configuration", delayed)
        run = BoundedRun(crowded_world(seed)).play()
    assert not run.complaints, (seed, run.complaints)


@settings(max_examples=scale_examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), delay_s=st.sampled_from((1, 10)))
@example(seed=1, delay_s=10)
def test_a_gang_gets_its_rack_beside_others(seed: int, delay_s: int) -> None:
    """A gang with many kinds of members, each of which needs half a node of one rack at least, and single asks of other
    queues are all served."""
    dice = random.Random(seed)
    nodes, racks, queues = dice.randint(40, 80), dice.randint(1, 3), dice.randint(1, 8)
    kinds, asks = dice.randint(2, nodes // racks // 3), dice.randint(1, nodes // 3)
    full = Resources({"vcore": CAPACITY})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prospects, "NODES_AT_ONCE", STEP)
        cluster = OwedCluster([full] * nodes, queues, Resources({"vcore": CAPACITY * nodes}), delay_s, racks)
        cluster.run((at, full, dice.choice((0, 0, -1))) for at in range(nodes))
        sizes = [Resources({"vcore": dice.randint(CAPACITY // 2, CAPACITY)}) for _ in range(kinds)]
        cluster.ask_for_gang(sizes)
        cluster.ask("a", [Resources({"vcore": dice.randint(1, CAPACITY)}) for _ in range(asks)], queues, asks)
        most = slices_for(nodes, kinds + asks, kinds + asks) + 2 * (kinds + asks) * nodes // STEP
        found = cluster.play(most, until_placed=kinds + asks)
    assert len(found.placed) == kinds + asks, (seed, found)
    assert len({int(node[1:]) % racks for key, node in found.placed.items() if key.startswith("g")}) == 1
    assert cluster.state.law_violations == 0
