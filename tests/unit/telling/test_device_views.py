"""Devices of a node as they are shown: what is free of each, who holds the rest, and what an allocation's tags say."""

from __future__ import annotations

from kornel.cli.text.cluster import render_node
from kornel.core.domain.devices import read_wants
from kornel.core.telling.encoding.kornel_v1 import encode_node
from kornel.core.telling.encoding.yunikorn.nodes import write_node
from kornel.core.telling.nodes.device_views import DeviceHolder, DeviceView
from kornel.core.telling.nodes.node_views import NodeView
from kornel.v1 import read_pb2 as pb
from tests.reading import read
from tests.scenarios.stage import Stage

PARTITION = "[rm-1]default"
GIB = 2**30


def shown() -> NodeView:
    stage = Stage()
    stage.play(["node n1 devices=g0:A100:80Gi:x,g1", "run whole queue=root.a node=n1 want=1 held=g1"])
    stage.play(["ask part queue=root.a want=0.25", "ask other queue=root.a want=8Gi", "cycle"])
    stage.play(["resize n1 devices=g0:A100:80Gi:x"])
    found = read(stage.engine, PARTITION, stage.now_ns).node("n1")
    assert found is not None
    return found


def test_a_node_shows_its_devices_and_their_holders() -> None:
    assert shown().devices == (
        DeviceView(
            "g0", "A100", 80 * GIB, "x", 650, False, (DeviceHolder("other", "a", 100), DeviceHolder("part", "a", 250))
        ),
        DeviceView("g1", "", 0, "", 0, True, (DeviceHolder("whole", "a", 1000),)),
    )


def test_an_allocation_shows_its_devices_among_its_tags() -> None:
    tags = {view.spec.key: view.tags for view in shown().allocations}
    found = read_wants(tags["part"])
    assert found is not None
    assert (found.share, found.given) == (250, ("g0",))
    assert dict(tags["whole"])["kornel.gpu.devices"] == "g1"


def test_messages_and_documents_have_them() -> None:
    view = shown()
    message = pb.GetNodeResponse.FromString(encode_node(view).SerializeToString())
    assert [(d.device_id, d.free, d.leaving) for d in message.devices] == [("g0", 650, False), ("g1", 0, True)]
    assert [(h.key, h.share) for h in message.devices[0].holders] == [("other", 100), ("part", 250)]
    document = write_node(view)
    assert document["devices"][1] == {
        "id": "g1", "free": 0, "leaving": True,
        "holders": [{"allocationKey": "whole", "applicationId": "a", "share": 1000}],
    }  # fmt: skip


def test_the_command_line_has_a_row_for_each() -> None:
    text = render_node(encode_node(shown()), 10**18)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "device type memory link free held by" in lines
    assert "g0 A100 80Gi x 0.65 other 0.1, part 0.25" in lines
    assert "g1 - - - 0, leaving whole 1" in lines
    assert "kornel.devices" not in text


def test_nodes_without_a_report_show_none() -> None:
    stage = Stage()
    stage.play(["node n1"])
    found = read(stage.engine, PARTITION, stage.now_ns).node("n1")
    assert found is not None
    assert found.devices == ()
    assert "devices" not in write_node(found)
