"""A shim with a gang: three placeholders, and as many workers once they run: ``python -m tests.conformance.gang_shim``.

With ``--never`` followed by the name of a termination type it does not confirm releases of that type.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import suppress

from kornel.shim_client import ApplicationUpdated, Ask, Released, ResyncRequired, ShimClient, resource
from kornel.si.v1 import si_pb2 as si

NODE = si.NodeInfo(nodeID="node-1", action=si.NodeInfo.CREATE, schedulableResource=resource({"vcore": 9000}))
GANG = si.AddApplicationRequest(
    applicationID="gang", queueName="root.a", placeholderAsk=resource({"vcore": 3000}), gangSchedulingStyle="Soft"
)


def asks(kind: str) -> list[Ask]:
    """Three of them, alike but for their keys."""
    placeholder = kind == "placeholder"
    return [
        Ask(f"{kind}-{n}", "gang", {"vcore": 1000}, task_group="workers", placeholder=placeholder) for n in range(3)
    ]


async def run(core: str, never: str) -> None:
    async with ShimClient(core, "gang") as client:
        while True:
            with suppress(ResyncRequired):
                await client.register()
                await client.create_nodes([NODE])
                await client.add_applications([GANG])
                await client.submit_asks(asks("placeholder"))
                async for update in client.updates():
                    match update:
                        case ApplicationUpdated(state="Running"):
                            await client.submit_asks(asks("worker"))
                        case Released(key=key, termination=termination) if update.wants_confirmation:
                            if si.TerminationType.Name(termination) != never:
                                await client.release([client.release_of("gang", key, termination)])


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", required=True)
    parser.add_argument("--never", default="")
    options = parser.parse_args()
    shim = asyncio.create_task(run(options.core, options.never))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, shim.cancel)
    with suppress(asyncio.CancelledError):
        await shim


if __name__ == "__main__":
    asyncio.run(main())
