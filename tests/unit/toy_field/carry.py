"""Sends an allocation with the toy field through a core, and prints where it is shown. Runs in a copy of the core."""

from __future__ import annotations

import json
from typing import Final

from kornel.cli.text.cluster import render_node
from kornel.core.domain.commands import AllocationSpec, RegisterManager, UpdateAllocations
from kornel.core.domain.effects import Allocated
from kornel.core.engine.engine import Engine
from kornel.core.journal.content.commands import decode_command, encode_command
from kornel.core.service.calls.plain_asks import PlainReader
from kornel.core.service.wire.scheduler_wire import Decoder, Encoder
from kornel.core.snapshot.engines import restore_engine, write_engine
from kornel.core.telling.encoding.kornel_v1 import encode_application, encode_node
from kornel.core.telling.encoding.yunikorn.applications import ALLOCATION, ASK
from kornel.core.telling.reader import Reader
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import journal_pb2

RM: Final = "rm"
PARTITION: Final = "[rm]default"
CONFIG: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: default
"""


def resource(vcore: int) -> si.Resource:
    return si.Resource(resources={"vcore": si.Quantity(value=vcore)})


def read_asks() -> list[AllocationSpec]:
    """Returns the specs of a small ask and one that fits nowhere, read from bytes; with a tag they are read otherwise,
    to the same specs."""
    asks = [
        si.Allocation(
            allocationKey=key,
            applicationID="app",
            resourcePerAlloc=resource(vcore),
            workClass="gold",  # type: ignore[call-arg]
        )
        for key, vcore in (("small", 1), ("large", 9))
    ]
    request = si.AllocationRequest(rmID=RM, allocations=asks)
    decoder = Decoder()
    plain = PlainReader(decoder).read(request.SerializeToString())
    assert plain is not None
    for ask in asks:
        ask.allocationTags["a"] = "b"
    (tagged,) = decoder.allocation_commands(si.AllocationRequest(rmID=RM, allocations=asks))
    assert [spec._replace(tags=()) for spec in tagged.allocations] == list(plain.specs)
    return list(plain.specs)


def main() -> None:
    specs = read_asks()
    command = UpdateAllocations(RM, tuple(specs))
    record = journal_pb2.JournalCommand()
    encode_command(command, record)
    replayed = decode_command(journal_pb2.JournalCommand.FromString(record.SerializeToString()))
    engine = Engine()
    engine.apply(RegisterManager(RM, CONFIG), 0)
    decoder = Decoder()
    nodes = [si.NodeInfo(nodeID="n1", action=si.NodeInfo.CREATE, schedulableResource=resource(2))]
    for early in decoder.node_commands(si.NodeRequest(rmID=RM, nodes=nodes)):
        engine.apply(early, 0)
    owner = si.UserGroupInformation(user="u", groups=["g"])
    new = [si.AddApplicationRequest(applicationID="app", queueName="root.default", ugi=owner)]
    for early in decoder.application_commands(si.ApplicationRequest(rmID=RM, new=new)):
        engine.apply(early, 0)
    engine.apply(replayed, 0)
    placed = [effect for effect in engine.cycle(1, 100).effects if isinstance(effect, Allocated)]
    answer = Encoder().encode_allocations(placed)
    other = Engine()
    restore_engine(other, write_engine(engine))
    reader = Reader(other)[PARTITION]
    node, application = reader.node("n1"), reader.application("app")
    assert node is not None
    assert application is not None
    found = encode_node(node)
    print(
        json.dumps(
            {
                "journal": [spec.work_class for spec in replayed.allocations],  # type: ignore[union-attr,attr-defined]
                "answer": si.AllocationResponse.FromString(answer).new[0].workClass,  # type: ignore[attr-defined]
                "rest": [
                    ALLOCATION.write(application.allocations[0]).get("workClass"),
                    ASK.write(application.asks[0]).get("workClass"),
                ],
                "schema": sorted({"workClass"} & {*ALLOCATION.schema["properties"]} & {*ASK.schema["properties"]}),
                "message": encode_application(application).allocations[0].work_class,  # type: ignore[attr-defined]
                "command line": render_node(found, 0),
            }
        )
    )


main()
