"""An agent that is another one by the same name is not given what may still run at the first."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from tests.unit.shim_local.test_dispatcher import SPEC, World


def _make_hello(identity: str) -> dict[str, Any]:
    capacity = {"vcore": 1, "memory": 1, "gpus": 0}
    return {
        "node": "n", "identity": identity, "capacity": capacity, "limits": "", "boot": "b", "attempts": {},
    }  # fmt: skip


async def test_another_agent_by_the_same_name_is_refused_while_tasks_may_run(tmp_path: Path) -> None:
    with closing(World(tmp_path)) as world:
        world.dispatcher.connect_agent(_make_hello("first"))
        assert not world.dispatcher.find_stranger(_make_hello("second"))
        world.dispatcher.submit(SPEC)
        world.dispatcher.place_task("1-1", "job-1", "n")
        await world.take()
        world.dispatcher.disconnect_agent("n")
        await world.take()
    # The server itself may have been restarted meanwhile.
    with closing(World(tmp_path)) as again:
        assert not again.dispatcher.find_stranger(_make_hello("first"))
        assert "kornel-local forget n" in again.dispatcher.find_stranger(_make_hello("second"))
        again.dispatcher.forget_node("n")
        assert not again.dispatcher.find_stranger(_make_hello("second"))
