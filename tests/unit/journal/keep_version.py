"""Writes what this version leaves behind into the repository: ``python -m tests.unit.journal.keep_version``.

A release runs it once; later versions read it (test_kept_versions.py). What earlier ones wrote stays as it is.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from kornel import RELEASE
from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    PreemptByHand,
    PreemptTarget,
    SetOperatorDrain,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import CycleResult, Engine
from kornel.core.journal.content.calls import Beginning
from kornel.core.journal.content.recording import RecordingEngine
from kornel.core.journal.content.replay import Replay, ReplayedPlace
from kornel.core.journal.snapshot_process import Assignment, make_snapshot
from kornel.core.journal.snapshots.snapshots import SnapshotHead, write_snapshot
from kornel.core.snapshot.engines import has_work_under_way, move_engine
from kornel.core.state.options import EngineOptions
from tests.patience import PATIENCE_S
from tests.properties.machine import driver
from tests.properties.machine.world import World
from tests.unit.journal.made import PARTITION, RM, asks, decide, open_journal, settings_for, small_cluster

HOME = Path(__file__).parent / "data"
RUN = "determinism/14"
TAKEN_AT = 60
"""The run of the machine of which a snapshot is kept, and the slice before which it is taken."""


class Enough(BaseException):
    """The engine has come as far as it was to come."""


class StoppedEngine(Engine):
    """An engine that is stopped in the middle of a run."""

    slices = 0

    def cycle(self, now_ns: int, budget: int) -> CycleResult:
        self.slices += 1
        if self.slices >= TAKEN_AT and not has_work_under_way(self):
            raise Enough
        return super().cycle(now_ns, budget)


def summarize(engine: Engine) -> dict[str, object]:
    """Returns what can be compared of *engine* by any version."""
    found: dict[str, object] = {}
    for name in engine.partition_names():
        state = engine.partition(name)
        assert state is not None
        found[name] = {
            "nodes": {node.node_id: sorted(node.allocations) for node in state.nodes.values()},
            "drained": sorted(node.node_id for node in state.nodes.values() if node.operator_drain is not None),
            "queues": sorted(state.queues),
            "applications": {key: str(application.state) for key, application in sorted(state.applications.items())},
            "waiting": sorted(key for key, ask in state.requests.items() if ask.node is None),
        }
    return found


async def keep_journal(path: Path, version: str) -> dict[str, object]:
    """Writes a journal of *version* to *path* that ends with a snapshot. Returns what its engine holds."""
    journal = open_journal(path, version=version)
    journal.start()
    big = AllocationSpec("too-big", "app", PARTITION, Resources({"vcore": 10**9}))
    gang = ApplicationSpec(
        "gang", "root.a", PARTITION, "ann", placeholder_ask=Resources({"vcore": 2}), placeholder_timeout_ms=10**6
    )
    holders = [
        AllocationSpec(f"holder-{n}", "gang", PARTITION, Resources({"vcore": 1}), task_group="g", placeholder=True)
        for n in range(2)
    ]
    await decide(
        journal,
        [
            *small_cluster(),
            asks(0, 5),
            UpdateNodes(RM, (NodeSpec("n2", NodeAction.CREATE, PARTITION, capacity=Resources({"vcore": 10})),)),
            SetOperatorDrain(RM, PARTITION, "n2", True, "operator"),
            UpdateApplications(RM, (gang,)),
            UpdateAllocations(RM, (big, *holders)),
            asks(5, 5),
            PreemptByHand(RM, PARTITION, PreemptTarget.NODE, "n2", None, ("gang",), "a trial", "operator"),
        ],
        slices=2,
    )
    found = summarize(journal.first.engine)
    await asyncio.to_thread(journal.close, PATIENCE_S)
    url = settings_for(path).url.render_as_string(hide_password=False)
    assert not make_snapshot(Assignment(url, 5.0, version, 0, 0, ending=True)).problem
    for left in path.parent.glob("*.lock"):
        left.unlink()
    return found


def keep_run(path: Path, version: str) -> dict[str, object]:
    """Writes a snapshot of an engine in the middle of a run of the machine. Returns what it holds."""
    world = World()
    world.engine = StoppedEngine()
    world.engine.record_events()
    with suppress(Enough):
        driver.episode(RUN, 400, world)
        raise AssertionError("the run ended before")
    engine = RecordingEngine.begin_empty(Beginning(version, False, EngineOptions(None, 0)))
    move_engine(world.engine, engine)
    replay = Replay()
    replay.start_from([ReplayedPlace(engine)], 1, 0, 0)
    path.write_bytes(write_snapshot(SnapshotHead(version, 1, 1, 1, 0, 1, 0), replay))
    return summarize(engine)


def main(version: str) -> None:
    """Write everything."""
    home = HOME / version
    shutil.rmtree(home, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / version
        made.mkdir()
        found = {
            "journal": asyncio.run(keep_journal(made / "journal.db", version)),
            "run": keep_run(made / "run.snapshot", version),
        }
        (made / "holds.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        shutil.copytree(made, home)
    print(home)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else RELEASE)
