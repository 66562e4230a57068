"""How long a node is left out for an ask that the shim could not start there, and that nothing else waits for it."""

from __future__ import annotations

import random

import pytest

from tests.scenarios.stage import Stage

SECOND = 10**9


def test_the_pause_doubles_up_to_ten_minutes() -> None:
    """1, 2, 4 ... 512, and from then on 600 s: placed the moment it is over, and not a moment before."""
    stage = Stage()
    stage.play(["node n1", "app app1", "ask k"])
    assert "allocate k on n1" in stage.play(["cycle"])
    now = 0
    for pause in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600):
        stage.play([f"release k type=SCHEDULING_FAILED_ON_RM at={now}s"])
        now += pause
        assert stage.play([f"cycle at={now * 1000 - 1}ms"]) == ["no answer"]
        assert stage.play([f"cycle at={now}s"]) == ["allocate k on n1"]


@pytest.mark.parametrize("seed", range(60))
def test_no_ask_goes_where_it_failed_before_its_pause_is_over_and_none_waits_without_need(seed: int) -> None:
    """Held against the rule, kept here in a few lines: pauses by ask and node, forgotten when a node changes."""
    dice = random.Random(seed)
    stage = Stage()
    names = [f"n{number}" for number in range(dice.randint(1, 3))]
    keys = [f"k{number}" for number in range(dice.randint(1, 5))]
    stage.play([*(f"node {name} vcore=2000" for name in names), "app app1", *(f"ask {key}" for key in keys)])
    times: dict[tuple[str, str], int] = {}
    until: dict[tuple[str, str], int] = {}
    drained: set[str] = set()
    state = stage.state
    now = 0
    for _ in range(80):
        now += dice.choice((0, 0, 1, 100, 500, 1000, 3000, 60_000))
        running = [key for key in keys if state.requests[key].node is not None]
        choice = dice.random()
        if choice < 0.5 and running:
            key = dice.choice(running)
            node = state.requests[key].node
            assert node is not None
            pair = (key, node.node_id)
            times[pair] = times.get(pair, 0) + 1
            until[pair] = now + min(1000 * 2 ** (times[pair] - 1), 600_000)
            stage.play([f"at={now}ms release {key} type=SCHEDULING_FAILED_ON_RM"])
        elif choice < 0.6:
            name = dice.choice(names)
            drained ^= {name}
            stage.play([f"at={now}ms {'drain' if name in drained else 'undrain'} {name}"])
            for pair in [pair for pair in times if pair[1] == name]:
                del times[pair], until[pair]
        for answer in stage.play([f"at={now}ms cycle"]):
            words = answer.split()
            if words[0] == "allocate":
                assert until.get((words[1], words[3]), 0) <= now, answer
        for key in keys:
            if state.requests[key].node is None:
                open_ = [name for name in names if name not in drained and until.get((key, name), 0) <= now]
                open_ = [name for name in open_ if not state.nodes[name].reservations]
                assert not [name for name in open_ if state.nodes[name].has_room(state.requests[key].shape.pairs)], key
