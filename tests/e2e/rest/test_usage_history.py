"""How full queues were, from the stored history: minute by minute, thinned, and also before a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kornel.core.archive.settings import history_settings
from kornel.core.process.history import HistoryChoice
from kornel.core.service.machine.clock import SECOND_NS
from tests.e2e.rest.shim import PREFIX, Cluster, rest_cluster
from tests.waiting import until

ROOTS = f"{PREFIX}/calls/HistoryService/ListUsage"


async def points(cluster: Cluster, **request: Any) -> list[dict[str, Any]]:
    answer = await cluster.http.post(ROOTS, json=request)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["points"]
    return found


async def look(cluster: Cluster, minutes: int = 1) -> None:
    """Let minutes pass, and wait until what was seen is in the database."""
    for _ in range(minutes):
        status = cluster.core.server.history.status()
        assert status is not None
        cluster.core.clock.advance(60 * SECOND_NS)
        await until(lambda before=status.stored: stored(cluster) > before, "the look at the use of queues")  # type: ignore[misc]


def stored(cluster: Cluster) -> int:
    status = cluster.core.server.history.status()
    assert status is not None
    return status.stored


async def committed(cluster: Cluster) -> None:
    def is_committed() -> bool:
        status = cluster.core.server.history.status()
        return status is not None and status.committed >= status.stored

    await until(is_committed, "the database to have taken everything")


async def test_how_full_a_queue_was_is_known_minute_by_minute_and_after_a_restart(tmp_path: Path) -> None:
    settings = history_settings(str(tmp_path / "history.db"), [])
    choice = HistoryChoice(settings, required=True)
    async with rest_cluster(history=choice) as cluster:
        await cluster.register()
        await cluster.node("n1", vcore=10)
        await look(cluster)
        await cluster.submit("app", queue="root.a")
        await cluster.ask("k", vcore=4)
        await cluster.ask("waits", vcore=8)
        await look(cluster)
        await cluster.release("k")
        await cluster.release("waits")
        await look(cluster)
        await committed(cluster)
        began = cluster.core.clock.now_ns()
        found = await points(cluster, queue="root.a", partition="default")
        # Before the release there is one more row: waits was placed when k left, and left in its turn.
        assert [one["used"] for one in found] == [{}, {"vcore": 4}, {}]
        assert [one["pending"].get("vcore", 0) for one in found] == [0, 8, 0]
        assert [one["sampleCount"] for one in found] == [1, 1, 1]
        root = await points(cluster, until_ns="0", partition="[rm-1]default")
        assert [one["max"] for one in root] == [{"vcore": 10}] * 3
        assert await points(cluster, queue="root.a", partition="other") == []
        (all_of_it,) = await points(cluster, queue="root.a", pointCount=1)
        assert (all_of_it["sampleCount"], all_of_it["used"]) == (3, {"vcore": 1})
        assert await points(cluster, sinceNs=str(began + 1)) == []
    async with rest_cluster(history=choice) as cluster:
        assert [one["used"] for one in await points(cluster, queue="ROOT.A")] == [{}, {"vcore": 4}, {}]
