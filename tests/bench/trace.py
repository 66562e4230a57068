"""P9: a real cluster and what ran on it, many times over.

The trace is a folder with a node list and a pod list (see ``kornel.shim_mock.trace``). Every node and every pod is
there
*inflation* times, with the amounts that the trace gives; pods go to the queue of their class of service, 200 to an
application, in their order of creation. The engine alone says beforehand how many find room; since that depends a
little on how asks and decisions mingle, the clock stops when all but one in a hundred of those have a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kornel.core.domain.commands import RegisterManager
from kornel.core.domain.effects import Allocated
from kornel.core.engine.engine import Engine
from kornel.core.service.wire.scheduler_wire import Decoder
from kornel.core.state.options import EngineOptions
from kornel.shim_mock.load.sending import Placed, Sender
from kornel.shim_mock.load.workload import USER, make_resource
from kornel.shim_mock.trace import PODS_PER_APPLICATION, Trace, load_trace
from kornel.si.v1 import si_pb2 as si
from tests.bench.core_process import RM, running_core
from tests.bench.placing import connection, over_echo, run, undisturbed
from tests.bench.table import Row

CONFIG = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues: [{name: latency}, {name: burstable}, {name: best-effort}]
"""
BATCH = 1_000
COUNTED = 0.99


def p9(folder: Path | None, runs: int, *, quick: bool) -> Iterator[Row]:
    """Allocations per second of the inflated trace; nothing without a trace."""
    if folder is None:
        print("P9   left out: name the folder of the openb trace with TRACE=dir (--trace)", flush=True)
        return
    if not folder.is_dir():
        print(f"P9   left out: there is no folder {folder}", flush=True)
        return
    inflation = 2 if quick else 10
    trace = load_trace(folder)
    nodes, added, messages = _nodes(trace, inflation), _applications(trace, inflation), _asks(trace, inflation)
    fitting = _fitting(nodes, added, messages)
    rates, ceilings = [], []
    for _ in range(runs):
        ceilings.append(run(over_echo(messages)).rate)
        rates.append(run(_over_core(nodes, added, messages, fitting)).rate)
    pods = len(trace.pods) * inflation
    what = f"trace x {inflation}: {len(nodes):,} nodes, {fitting:,} of {pods:,} asks fit"
    yield Row("P9", what, "/s", rates, 25_000, ceilings=ceilings)


def _nodes(trace: Trace, inflation: int) -> list[si.NodeInfo]:
    return [
        si.NodeInfo(
            nodeID=f"{node.name}-{copy}",
            action=si.NodeInfo.CREATE,
            schedulableResource=make_resource(**node.resources),
            attributes={"si/instance-type": node.model or "cpu"},
        )
        for copy in range(inflation)
        for node in trace.nodes
    ]


def _named(trace: Trace, inflation: int) -> Iterator[tuple[str, str, str, si.Resource]]:
    """Key, application, queue and size of every ask."""
    of_queue: dict[str, int] = {}
    for copy in range(inflation):
        for pod in trace.pods:
            number = of_queue[pod.queue] = of_queue.get(pod.queue, -1) + 1
            name = f"{pod.queue.rpartition('.')[2]}-{number // PODS_PER_APPLICATION}"
            yield f"{pod.name}-{copy}", name, pod.queue, make_resource(**pod.resources)


def _applications(trace: Trace, inflation: int) -> list[si.AddApplicationRequest]:
    queues = {name: queue for _, name, queue, _ in _named(trace, inflation)}
    ugi = si.UserGroupInformation(user=USER)
    return [si.AddApplicationRequest(applicationID=name, queueName=queue, ugi=ugi) for name, queue in queues.items()]


def _asks(trace: Trace, inflation: int) -> list[si.AllocationRequest]:
    asks = [
        si.Allocation(allocationKey=key, applicationID=name, resourcePerAlloc=size)
        for key, name, _, size in _named(trace, inflation)
    ]
    return [
        si.AllocationRequest(rmID=RM, allocations=asks[start : start + BATCH]) for start in range(0, len(asks), BATCH)
    ]


def _fitting(
    nodes: list[si.NodeInfo], added: list[si.AddApplicationRequest], messages: Sequence[si.AllocationRequest]
) -> int:
    """How many asks find room, a batch placed before the next comes."""
    engine, decoder = Engine(EngineOptions(reservation_delay_ns=None)), Decoder()
    engine.apply(RegisterManager(RM, CONFIG), 0)
    for command in decoder.node_commands(si.NodeRequest(rmID=RM, nodes=nodes)):
        engine.apply(command, 0)
    for application in decoder.application_commands(si.ApplicationRequest(rmID=RM, new=added)):
        engine.apply(application, 0)
    fitting = 0
    for message in messages:
        for asks in decoder.allocation_commands(message):
            engine.apply(asks, 1)
        more = True
        while more:
            result = engine.cycle(1, 500)
            fitting += sum(isinstance(effect, Allocated) for effect in result.effects)
            more = result.more
    return fitting


async def _over_core(
    nodes: list[si.NodeInfo],
    added: list[si.AddApplicationRequest],
    messages: Sequence[si.AllocationRequest],
    fitting: int,
) -> Placed:
    async with running_core() as (address, _), connection(address) as channel:
        sender = Sender(channel, RM)
        await sender.register(CONFIG)
        await sender.report_nodes(nodes)
        await sender.add_applications(added)
        with undisturbed():
            return await sender.place_asks(messages, int(fitting * COUNTED))
