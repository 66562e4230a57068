"""Numbers that commands show are sums of what lies below, in the units of their types."""

from __future__ import annotations

from kornel.cli.text.cluster import render_domains
from kornel.cli.text.configuration import render_impact
from kornel.cli.text.quantities import ASCII
from kornel.cli.text.status import render_status
from kornel.v1 import configuration_pb2, read_pb2
from kornel.v1.status_pb2 import DrainedNode, GetStatusResponse, PartitionStatus, QueueStatus

MINUTE_NS = 60 * 10**9


def test_parents_count_the_applications_below_them() -> None:
    counts = {"root": 0, "root.a": 0, "root.a.b": 2, "root.a.c": 3, "root.ab": 4}
    queues = [QueueStatus(path=path, state="Active", application_count=count) for path, count in counts.items()]
    text = render_status(GetStatusResponse(partitions=[PartitionStatus(name="default", queues=queues)]), 0)
    rows = [line.split() for line in text.splitlines() if line.strip().startswith("root")]
    assert {row[0]: int(row[1]) for row in rows} == {
        "root": 9, "root.a": 5, "root.a.b": 2, "root.a.c": 3, "root.ab": 4,
    }  # fmt: skip


def test_a_drained_rack_is_one_line() -> None:
    """Those who were drained at another time, or by somebody else, are told apart."""
    rack = [DrainedNode(node_id=f"n{n}", principal="ann", since_ns=n, registered=True) for n in range(40)]
    others = [
        DrainedNode(node_id="late", principal="ann", since_ns=5 * MINUTE_NS, registered=True),
        DrainedNode(node_id="gone", principal="bob", since_ns=1),
    ]
    partition = PartitionStatus(name="default", drained_nodes=[*rack, *others])
    text = " ".join(render_status(GetStatusResponse(partitions=[partition]), 6 * MINUTE_NS).split())
    assert text.count("drained:") == 3
    assert "drained: n0, n1, n2 and 37 more nodes by ann since 1970-01-01T00:00:00Z" in text
    assert "drained: gone by bob since 1970-01-01T00:00:00Z (5 min 59 s ago), not registered now" in text


def test_a_preview_has_units() -> None:
    settings = [
        configuration_pb2.SettingChange(name="max.memory", before="", after=str(3 * 2**30)),
        configuration_pb2.SettingChange(name="guaranteed.vcore", before="1500", after="2000"),
        configuration_pb2.SettingChange(name="maxapplications", before="1500", after="0"),
    ]
    change = configuration_pb2.QueueChange(path="root.a", settings=settings)
    text = render_impact(configuration_pb2.PreviewConfigurationResponse(changed=True, queues=[change]))
    assert "max.memory: none -> 3Gi" in text
    assert "guaranteed.vcore: 1.5 -> 2" in text
    assert "maxapplications: 1500 -> 0" in text


def test_room_that_is_held_is_not_free() -> None:
    domain = read_pb2.DomainInfo(
        level="rack", path=["r1"], capacity={"vcore": 16_000}, free={"vcore": 12_000}, held={"vcore": 5_000}
    )
    text = render_domains(read_pb2.ListDomainsResponse(domains=[domain]), "rack", ASCII)
    assert "7 of 16, 5 held" in text
