"""An arrangement that several groups use: an ask that has preempted a victim and waits for it to leave."""

from __future__ import annotations

from si.v1 import si_pb2 as si

from conformance import configs, messages
from conformance.bench import Bench
from conformance.entries import released, updated

VICTIM_VCORE = 5000


async def victim_and_preemptor(bench: Bench) -> None:
    """n1 is filled by v of b1 in root.b; ask k of app, owed the room by the guarantee of root.a, has preempted it.

    The core has asked for v's release and keeps n1 for k. Nothing is confirmed yet.
    """
    await bench.reg(configs.PREEMPTION)
    await bench.node("n1", VICTIM_VCORE)
    await bench.app("b1", "root.b")
    await bench.start("v", app="b1", vcore=VICTIM_VCORE)
    await bench.app()
    await bench.send(messages.allocation("k", VICTIM_VCORE, policy=(True, True)))
    await bench.expect(updated("app", "Accepted"))
    await bench.clock.advance(1)
    await bench.expect(released("v", si.PREEMPTED_BY_SCHEDULER, app="b1"))
