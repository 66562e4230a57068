"""Asks that are owed in several queues are served in one order, whichever path comes first, and nobody has to leave for
what the order passed over a moment before (scheduling.md 5.1, preemption.md B.1, F5, G)."""

from __future__ import annotations

import random
import re

import pytest

from tests.examples import mark_rest_long, scale_examples
from tests.oracles.order_of_owed import OwedAsk, OwedQueue, serve_owed
from tests.scenarios.stage import Stage

WORLDS = scale_examples(1_000)


def grow(dice: random.Random, queue: OwedQueue, depth: int, *, ranked: bool) -> None:
    """Some queues below *queue*; a guarantee of a parent is that of its children together, and a little more."""
    for number in range(dice.randint(2, 3)):
        child = OwedQueue(f"{'abcd'[depth]}{number}", queue, prioritised=queue.prioritised and dice.random() > 0.15)
        if ranked:
            child.offset, child.fence = dice.choice((0, 0, 0, 2, -3)), dice.random() < 0.2
        queue.below.append(child)
        if depth < 2 and dice.random() < 0.4:
            grow(dice, child, depth + 1, ranked=ranked)
        else:
            child.guaranteed = dice.choice((0, 1, 2, 3, 6))
        if child.below and dice.random() < 0.4:
            child.guaranteed = child.counted() + dice.randint(0, 2)


def lines_of(queue: OwedQueue, path: str = "root") -> list[str]:
    """The queues below *queue* as a scenario says them."""
    found: list[str] = []
    for child in queue.below:
        below = f"{path}.{child.name}"
        said = [f"queue {below}", f"application.sort.priority={'enabled' if child.prioritised else 'disabled'}"]
        said.append(f"priority.offset={child.offset} priority.policy={'fence' if child.fence else 'default'}")
        if child.guaranteed:
            said.append(f"guaranteed={{f={child.guaranteed}}}")
        found += [" ".join(said), *lines_of(child, below)]
    return found


def path_of(queue: OwedQueue) -> str:
    return ".".join(part.name for part in reversed(queue.path()))


def preempting(answers: list[str]) -> list[str]:
    """The asks for which victims are released, in order."""
    return [key for answer in answers for key in re.findall(r"^release .* for=(\S+)$", answer)]


def check_order(seed: int) -> None:
    """One world, served in each of the ways."""
    dice = random.Random(seed)
    root = OwedQueue("root", prioritised=dice.random() > 0.1)
    grow(dice, root, 0, ranked=True)
    victims = dice.randint(1, 8)
    lines, number = [], 0
    for leaf in root.leaves():
        path = path_of(leaf)
        leaf.runs = dice.choice((0, 0, 1, 2))
        lines += [f"run r{number}-{i} queue={path} node=n1 f=1 required=n1" for i in range(leaf.runs)]
        for application in range(2):
            lines.append(f"app {path}-{application} queue={path}")
            for _ in range(dice.randint(0, 3)):
                ask = OwedAsk(f"k{number:02}", application, dice.choice((0, 0, 1, 4, 5)), number)
                leaf.asks.append(ask)
                lines.append(f"ask {ask.key} app={path}-{application} f=1 p={ask.priority} other=yes")
                number += 1
        number += 1
    running = sum(leaf.runs for leaf in root.leaves())
    cluster = running + victims + 1
    prepared = [
        "partition limit=1.0",
        "queue root application.sort.priority=" + ("enabled" if root.prioritised else "disabled"),
        *lines_of(root),
        "queue root.victims guaranteed={f=1}",
        f"node n1 f={cluster}",
        *(f"run v{i} queue=root.victims node=n1 f=1 p=-1000" for i in range(victims + 1)),
        *lines,
        "cycle",
    ]
    expected = serve_owed(root, victims, cluster)
    ways = (
        ["cycle at=30s"],
        ["preempt-cycle at=30s"] * 9 + ["cycle"],
        ["cycle at=30s once budget=1", "preempt-cycle"] * 9,
    )
    for way in ways:
        stage = Stage()
        stage.play(prepared)
        assert preempting(stage.play([*way, "cycle"])) == expected, f"seed {seed}: {way[0]}"


def is_swap(victim: OwedQueue, asks: OwedQueue, used: dict[OwedQueue, int]) -> bool:
    """Tells whether a leaf without a guarantee swaps inside one that is spent, for what another leaf there holds above
    its own (preemption.md A): shares, by which the order goes, give nobody a right to that."""
    held = {queue: sum(used[leaf] for leaf in queue.leaves()) for queue in asks.path()}
    guarantee = next((queue for queue in asks.path() if queue.guaranteed), None)
    return (
        guarantee is not None
        and guarantee is not asks
        and held[guarantee] == guarantee.guaranteed
        and guarantee in victim.path()
        and used[victim] > victim.guaranteed > 0
    )


def check_empty_pool(seed: int) -> None:
    """One world that begins empty."""
    dice = random.Random(seed)
    root = OwedQueue("root")
    grow(dice, root, 0, ranked=False)
    pool = root.counted() + dice.randint(0, 10)
    lines: list[str] = []
    wanted = {leaf: dice.choice((0, 1, 4, pool)) for leaf in root.leaves()}
    for leaf, count in wanted.items():
        lines += [f"ask {path_of(leaf)}-{number} queue={path_of(leaf)} f=1 other=yes" for number in range(count)]
    dice.shuffle(lines)
    stage = Stage()
    stage.play([*lines_of(root), f"node n1 f={pool}", *lines, "cycle"])
    state = stage.state
    f = state.types.names.index("f")
    used = {leaf: state.queues[path_of(leaf)].used[f] for leaf in wanted}
    for leaf, count in wanted.items():
        assert used[leaf] >= min(leaf.guaranteed, count), f"seed {seed}: {path_of(leaf)}"
    leaves = {path_of(leaf): leaf for leaf in wanted}
    for answer in stage.play(["preempt-cycle at=31s", "cycle"]):
        left = re.match(r"release (\S+)-\d+ .* for=(\S+)-\d+$", answer)
        if left is not None:
            assert is_swap(leaves[left[1]], leaves[left[2]], used), f"seed {seed}: {answer}"


@pytest.mark.parametrize("part", mark_rest_long(range(4)))
def test_the_owed_are_served_in_one_order_by_every_path(part: int) -> None:
    """Against the oracle: in the allocation pass, in rounds, and where rounds come between two slices."""
    for seed in range(part, WORLDS, 4):
        check_order(seed)


@pytest.mark.parametrize("part", mark_rest_long(range(4)))
def test_nobody_has_to_leave_for_what_the_order_passed_over(part: int) -> None:
    """An empty pool that has room for all guarantees, and all ask at once: who is owed something has it at once, and
    nobody leaves but for a swap inside a guarantee that is spent."""
    for seed in range(part, WORLDS, 4):
        check_empty_pool(seed)
