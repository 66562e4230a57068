"""A complete shim on one page: one node, one application, and tasks that run for a while.

python -m kornel.shim_client.example --core 127.0.0.1:50051
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import suppress

from kornel.shim_client import Allocated, ApplicationAccepted, Ask, Released, ResyncRequired, ShimClient, resource
from kornel.si.v1 import si_pb2 as si

QUEUES = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: example}]}]}]"
NODE = si.NodeInfo(nodeID="node-1", action=si.NodeInfo.CREATE, schedulableResource=resource({"vcore": 4000}))
OWNER = si.UserGroupInformation(user="example", groups=["example"])
APP = si.AddApplicationRequest(applicationID="app-1", queueName="root.example", ugi=OWNER)


async def run(core: str, rm_id: str, tasks: int, seconds: float) -> None:
    """Ask for *tasks* tasks of one vcore each, run each placed task for *seconds*, and stop the tasks that the core
    releases."""
    waiting = {f"task-{n}": Ask(f"task-{n}", "app-1", {"vcore": 1000}) for n in range(tasks)}
    running: dict[str, si.Allocation] = {}

    async def container(key: str) -> None:
        await asyncio.sleep(seconds)
        if running.pop(key, None) is not None:
            await client.release([client.release_of("app-1", key, si.STOPPED_BY_RM)])

    async with ShimClient(core, rm_id) as client, asyncio.TaskGroup() as containers:
        while True:
            with suppress(ResyncRequired):  # a core that lost the registration gets everything again
                await client.register(config=QUEUES)
                await client.create_nodes([NODE])  # waits for the core's answer, as does the next call
                [answer] = await client.add_applications([APP])
                if isinstance(answer, ApplicationAccepted):
                    await client.report_allocations(running.values())  # so that no other task is placed in their room
                    await client.submit_asks(waiting.values())
                async for update in client.updates():
                    print(update, flush=True)
                    match update:
                        case Allocated(key=key, message=message) if waiting.pop(key, None) is not None:
                            running[key] = message
                            containers.create_task(container(key))
                        case Released(key=key, termination=termination):
                            running.pop(key, None)
                            if update.wants_confirmation:
                                await client.release([client.release_of("app-1", key, termination)])


async def main() -> None:
    """Run until SIGTERM or SIGINT, then half-close the streams."""
    parser = argparse.ArgumentParser(description="A small shim: one node, one application.")
    parser.add_argument("--core", default="127.0.0.1:50051", help="address of the core")
    parser.add_argument("--rm-id", default="example", help="name of the resource manager")
    parser.add_argument("--tasks", type=int, default=8, help="how many tasks to run")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each of them runs")
    options = parser.parse_args()
    shim = asyncio.create_task(run(options.core, options.rm_id, options.tasks, options.seconds))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, shim.cancel)
    with suppress(asyncio.CancelledError):
        await shim


if __name__ == "__main__":
    asyncio.run(main())
