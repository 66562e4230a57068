"""Initial situations that several groups of cases use: a preemption under way, a gang that waits, and a complete
gang."""

from __future__ import annotations

from kornel.conformance import configs, messages
from kornel.conformance.bench import Bench
from kornel.conformance.entries import app_accepted, new, released, updated
from kornel.si.v1 import si_pb2 as si

VICTIM_VCORE = 5000
GROUP = "workers"
LONG_S = 3600.0
"""The timeout of a gang whose placeholders have to stay."""


async def victim_and_preemptor(bench: Bench) -> None:
    """Fills n1 with allocation v of application b1 in root.b. Then ask k of app preempts v, because root.a is
    guaranteed the room.

    The core has asked for v's release and keeps n1 for k. Nothing is confirmed yet.
    """
    await bench.reg(configs.PREEMPTION)
    await bench.node("n1", VICTIM_VCORE)
    await bench.app("b1", "root.b")
    await bench.start("v", app="b1", vcore=VICTIM_VCORE)
    await bench.app()
    await bench.send(messages.allocation("k", VICTIM_VCORE, policy=(True, True)))
    await bench.expect(updated("app", "Accepted"))
    await bench.clock.advance_time(1)
    await bench.expect(released("v", si.PREEMPTED_BY_SCHEDULER, app="b1"))


def find_timeout(bench: Bench) -> float:
    """Returns the timeout in seconds for a gang that has to wait too long, but not before the kit was sure of a
    silence: on a core without a test clock, that takes real time."""
    return 1 + 4 * bench.settings.settle_s


async def waiting_gang(bench: Bench, *, style: str = "Soft") -> None:
    """Adds application app whose two placeholders p1 and p2 cannot both run on n1: p1 is allocated, p2 waits.

    A core may place a hard gang only as a whole, so p1 of such a gang is reported as running.
    """
    await bench.reg()
    await bench.node("n1")
    size = 6000
    gang, timeout_ms = {"vcore": 2 * size}, int(find_timeout(bench) * 1000)
    await bench.send_applications(messages.application("app", gang=gang, gang_timeout_ms=timeout_ms, gang_style=style))
    await bench.expect(app_accepted("app"))
    await bench.send(make_placeholder("p1", size, node="n1" if style == "Hard" else ""), make_placeholder("p2", size))
    await bench.expect(updated("app", "Accepted"), new("p1", "n1"))
    await bench.expect_silence()


async def gang_timeout(bench: Bench, *, style: str = "Soft") -> None:
    """Makes the placeholders of a :func:`waiting_gang` wait until they time out. The core's messages about this are
    still unread."""
    await waiting_gang(bench, style=style)
    await bench.clock.advance_time(find_timeout(bench) + 1)


async def whole_gang(bench: Bench, *, vcore: int = 1000, timeout_s: float = LONG_S) -> None:
    """Makes app Running with its placeholders p1 and p2 on n1, which are its whole announced gang. Nothing else
    runs."""
    await bench.reg()
    await bench.node("n1")
    await bench.send_applications(
        messages.application("app", gang={"vcore": 2 * vcore}, gang_timeout_ms=int(timeout_s * 1000), gang_style="Soft")
    )
    await bench.expect(app_accepted("app"))
    await bench.send(make_placeholder("p1", vcore), make_placeholder("p2", vcore))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_set(new("p1", "n1"), new("p2", "n1"))
    await bench.expect(updated("app", "Running"))


async def add_replacing_ask(
    bench: Bench, *, vcore: int = 1000, real_vcore: int = 1000, timeout_s: float = LONG_S
) -> str:
    """Adds real ask r to a :func:`whole_gang`, and returns the key of the placeholder that the core replaces by it."""
    await whole_gang(bench, vcore=vcore, timeout_s=timeout_s)
    await bench.send(messages.allocation("r", real_vcore, group=GROUP))
    chosen = await bench.expect_one_of(released("p1", si.PLACEHOLDER_REPLACED), released("p2", si.PLACEHOLDER_REPLACED))
    await bench.expect_silence()
    return chosen.key


def make_placeholder(key: str, vcore: int = messages.ASK_VCORE, node: str = "") -> si.Allocation:
    """Returns a placeholder ask of app, or, with *node*, a placeholder that runs there."""
    return messages.allocation(key, vcore, node=node, group=GROUP, placeholder=True)
