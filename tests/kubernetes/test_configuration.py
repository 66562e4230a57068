"""Edits of the ConfigMap with the queues, good and bad, with the core there and away."""

from __future__ import annotations

import pytest

from tests.kubernetes.api import make_pods
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.programs import BUILD_S, wait_for

pytestmark = pytest.mark.timeout(BUILD_S)

GOOD = (
    "partitions: [{name: default, queues: ["
    "{name: root, submitacl: '*', queues: [{name: a, resources: {max: {vcore: %s}}}]}]}]"
)


def edit(cluster: Cluster, vcore: str) -> None:
    cluster.api.patch("ConfigMap", "yunikorn-configs", {"data": {"queues.yaml": GOOD % vcore}})


def read_max(cluster: Cluster) -> int:
    found: int = cluster.core.read("/partition/default/queue/root.a")["maxResource"]["vcore"]
    return found


def test_a_good_edit_holds_at_once_and_a_bad_one_is_refused_as_a_whole(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    shim = cluster.start(GOOD % "2")
    cluster.api.create(*make_pods("job", 6, queue="root.a"))
    cluster.wait_for_pods("job", 2)
    edit(cluster, "4")
    cluster.wait_for_pods("job", 4)
    edit(cluster, "-1")
    wait_for(lambda: "reload configuration failed" in shim.program.printed(), "the shim to say that it was refused")
    assert "resources.max.vcore" in shim.program.printed()
    assert read_max(cluster) == 4000
    edit(cluster, "6")
    cluster.wait_for_pods("job", 6)
    cluster.check_books()


def test_edits_while_the_core_is_away_are_brought_and_bad_ones_do_not_keep_the_shim_out(cluster: Cluster) -> None:
    cluster.add_nodes(2)
    shim = cluster.start(GOOD % "2")
    cluster.api.create(*make_pods("job", 6, queue="root.a"))
    cluster.wait_for_pods("job", 2)
    cluster.core.program.kill()
    wait_for(lambda: shim.health() != "schedules", "the shim to notice")
    edit(cluster, "3")
    wait_for(lambda: shim.program.printed().count("kept until the core is back") == 1, "the edit to be kept")
    cluster.core.start()
    cluster.wait_for_pods("job", 3)
    cluster.core.program.kill()
    wait_for(lambda: shim.health() != "schedules", "the shim to notice")
    edit(cluster, "-1")
    wait_for(lambda: shim.program.printed().count("kept until the core is back") == 2, "the edit to be kept")
    cluster.core.start()
    wait_for(lambda: shim.health() == "schedules", "the shim to register")
    assert shim.metric("kornel_shim_configurations_refused_total") == 1
    assert read_max(cluster) == 3000
    edit(cluster, "5")
    cluster.wait_for_pods("job", 5)
    cluster.check_books()
