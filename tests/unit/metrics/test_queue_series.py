"""Series of single queues: which there are, for how long, and under what names (rest.md 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from kornel.core.domain.application_states import AppState
from kornel.core.metrics import queue_series
from kornel.core.metrics.decisions import QueueCounts
from kornel.core.metrics.queue_series import QueueSeries, sanitise_name
from kornel.core.telling.partitions.partition_gauges import GovernorGauges, PartitionGauges, QueueGauges
from tests.exposition import by_key

TYPES = ("memory", "vcore")


@dataclass
class Tree:
    """The queues of one partition, as they stand."""

    queues: dict[str, QueueGauges] = field(default_factory=dict)
    name: str = "[rm]default"
    types: tuple[str, ...] = TYPES

    def put(
        self,
        path: str,
        *,
        used: tuple[int, ...] = (0, 0),
        maximum: Mapping[int, int] | None = None,
        guaranteed: Mapping[int, int] | None = None,
        most_apps: int = 0,
        apps: Mapping[AppState, int] | None = None,
        running: int = 0,
    ) -> None:
        none = (0,) * len(self.types)
        self.queues[path] = QueueGauges(
            path, guaranteed or {}, maximum or {}, used, none, none, most_apps, apps or {}, running
        )

    @property
    def gauges(self) -> PartitionGauges:
        governor = GovernorGauges(0, {}, ())
        queues = tuple(self.queues.values())
        return PartitionGauges(self.name, self.types, queues, {}, 0, 0, 0, {}, 0, 0, 0, 0, 0, 0, 0, 0, 0, governor)


def samples(
    series: QueueSeries, *trees: Tree, counts: Mapping[str, QueueCounts] | None = None
) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels, by label."""
    return by_key("".join(series.write_lines([tree.gauges for tree in trees], counts or {})))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("root.a-b", "root_a_b"), ("9lives", "_9lives"), ("root.a:b", "root_a:b"), ("root.münchen", "root_m_nchen")],
)
def test_names_of_metrics_have_nothing_foreign_in_them(name: str, expected: str) -> None:
    assert sanitise_name(name) == expected


def test_a_series_appears_with_its_first_use_and_stays_at_0() -> None:
    """Case 57, second half: allocated series show 0, not what they last were."""
    tree, series = Tree(), QueueSeries()
    tree.put("root.a")
    assert samples(series, tree) == {}
    tree.put("root.a", used=(0, 500))
    key = ("yunikorn_queue_resource", "root.a", "vcore", "allocated")
    assert samples(series, tree) == {key: 500}
    tree.put("root.a")
    assert samples(series, tree) == {key: 0}


def test_a_max_that_disappears_shows_0() -> None:
    """Case 57."""
    tree, series = Tree(), QueueSeries()
    tree.put("root.a", maximum={0: 7, 1: 8}, guaranteed={0: 5}, most_apps=3)
    assert samples(series, tree) == {
        ("yunikorn_queue_resource", "root.a", "memory", "max"): 7,
        ("yunikorn_queue_resource", "root.a", "vcore", "max"): 8,
        ("yunikorn_queue_resource", "root.a", "memory", "guaranteed"): 5,
        ("yunikorn_queue_resource", "root.a", "apps", "maxRunningApps"): 3,
    }
    tree.put("root.a", maximum={0: 7})
    after = samples(series, tree)
    assert after["yunikorn_queue_resource", "root.a", "vcore", "max"] == 0
    assert after["yunikorn_queue_resource", "root.a", "memory", "max"] == 7
    assert after["yunikorn_queue_resource", "root.a", "apps", "maxRunningApps"] == 0


def test_a_removed_queue_takes_its_series_along_but_for_the_total() -> None:
    """Case 55: removed and made again, the total goes on."""
    tree, series, counted = Tree(), QueueSeries(), QueueCounts()
    counted.allocated, counted.ended[AppState.COMPLETED] = 4, 1
    tree.put("root.a", used=(1, 1), apps={AppState.RUNNING: 2})
    before = samples(series, tree, counts={"root.a": counted})
    assert before["yunikorn_queue_app", "root.a", "running"] == 2
    assert before["yunikorn_queue_app", "root.a", "completed"] == 1
    assert before["yunikorn_root_a_queue_container", "allocated"] == 4
    tree.queues.clear()
    total = {("yunikorn_queue_app_total", "root.a", "completed"): 1.0}
    assert samples(series, tree, counts={"root.a": counted}) == total
    tree.put("root.a")
    again = samples(series, tree, counts={"root.a": counted})
    assert total.items() <= again.items()
    assert ("yunikorn_queue_app", "root.a", "running") not in again


def test_queues_whose_names_differ_in_foreign_characters_share_a_counter() -> None:
    """Case 56."""
    tree, one, other = Tree(), QueueCounts(), QueueCounts()
    one.allocated, other.allocated = 1, 2
    tree.put("root.a-b", running=1)
    tree.put("root.a_b", running=1)
    found = samples(QueueSeries(), tree, counts={"root.a-b": one, "root.a_b": other})
    assert found["yunikorn_root_a_b_queue_container", "allocated"] == 3
    assert found["yunikorn_root_a_b_queue_container", "released"] == 1
    assert found["kornel_queue_containers_total", "root.a-b", "allocated"] == 1


def test_equal_paths_of_several_partitions_are_added_up() -> None:
    here, there = Tree(), Tree(name="[rm]gpu", types=("vcore", "gpu"))
    here.put("root", used=(1, 20), apps={AppState.RUNNING: 1})
    there.put("root", used=(300, 4), apps={AppState.RUNNING: 1, AppState.NEW: 1})
    found = samples(QueueSeries(), here, there)
    assert found["yunikorn_queue_resource", "root", "vcore", "allocated"] == 320
    assert found["yunikorn_queue_resource", "root", "gpu", "allocated"] == 4
    assert found["yunikorn_queue_app", "root", "running"] == 2
    assert found["yunikorn_queue_app", "root", "new"] == 1


def test_labels_are_escaped() -> None:
    tree = Tree(types=('odd"type\\', "vcore"))
    tree.put('root.q"1', used=(1, 0))
    assert samples(QueueSeries(), tree) == {("yunikorn_queue_resource", 'root.q"1', 'odd"type\\', "allocated"): 1}


def test_too_many_queues_and_types_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_series, "QUEUES_SHOWN", 2)
    monkeypatch.setattr(queue_series, "TYPES_SHOWN", 1)
    tree, series = Tree(), QueueSeries()
    for path in ("root", "root.a", "root.b"):
        tree.put(path, used=(1, 1), maximum={0: 3, 1: 3})
    found = samples(series, tree)
    assert {key[1:] for key in found} == {
        (path, "memory", state) for path in ("root", "root.a") for state in ("allocated", "max")
    }
    assert series.omitted == 1


def test_aliases_have_the_names_of_older_versions() -> None:
    tree = Tree()
    tree.put("root.a-b", used=(0, 5), apps={AppState.RUNNING: 2})
    found = samples(QueueSeries(aliases=True), tree)
    assert found["yunikorn_root_a_b_queue_app", "running"] == 2
    assert found["yunikorn_root_a_b_queue_resource", "vcore", "allocated"] == 5
