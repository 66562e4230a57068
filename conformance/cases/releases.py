"""Cases about releases and their confirmations: which side starts them, which side confirms, and how they are
answered."""

from __future__ import annotations

from kornel.conformance import messages
from kornel.conformance.arrangements import (
    GROUP,
    LONG_S,
    VICTIM_VCORE,
    add_replacing_ask,
    find_timeout,
    gang_timeout,
    make_placeholder,
    victim_and_preemptor,
    whole_gang,
)
from kornel.conformance.bench import Bench
from kornel.conformance.case import case
from kornel.conformance.entries import Kind, Want, new, released, updated
from kornel.conformance.messages import ASK_VCORE, NODE_VCORE, allocation
from kornel.conformance.outcome import check
from kornel.si.v1 import si_pb2 as si

COMPLETING_S = 31
"""A little more than the time that an idle application stays Completing."""


async def one_allocated(bench: Bench) -> None:
    """Registers app with its only allocation k on n1."""
    await bench.world()
    await bench.start("k")


async def one_replaced(bench: Bench, real_vcore: int = ASK_VCORE, timeout_s: float = LONG_S) -> str:
    """Replaces one placeholder of a gang by r, and returns the key of the remaining placeholder."""
    gone = await add_replacing_ask(bench, real_vcore=real_vcore, timeout_s=timeout_s)
    await bench.release(gone, si.PLACEHOLDER_REPLACED)
    await bench.expect(new("r", "n1"))
    return "p1" if gone == "p2" else "p2"


@case(107, "the last release completes the application after 30 s", rule="protocol.md 10.2", waits_s=COMPLETING_S)
async def release_last(bench: Bench) -> None:
    await one_allocated(bench)
    await bench.release("k")
    await bench.expect(updated("app", "Completing"), released("k", app="app"))
    await bench.expect_silence()
    await bench.clock.advance_time(COMPLETING_S)
    await bench.expect(updated("app", "Completed"))


@case(108, "a release is answered once", rule="protocol.md 10.3")
async def release_twice(bench: Bench) -> None:
    await one_allocated(bench)
    await bench.release("k")
    await bench.expect(updated("app", "Completing"), released("k"))
    await bench.release("k")
    await bench.expect_silence()


@case(109, "a release of unknown type is STOPPED_BY_RM", rule="protocol.md 10.2")
async def release_of_unknown_type(bench: Bench) -> None:
    await bench.world()
    await bench.start("k0", "k99")
    await bench.release("k0", 0)
    await bench.expect(released("k0"))
    await bench.release("k99", 99)
    await bench.expect(updated("app", "Completing"), released("k99"))


@case(110, "a withdrawn ask is not answered; without any other the application completes", rule="protocol.md 10.1")
async def withdraw(bench: Bench) -> None:
    await bench.world()
    await bench.send(allocation("k", NODE_VCORE + 1))
    await bench.expect(updated("app", "Accepted"))
    await bench.release("k")
    await bench.expect(updated("app", "Completing"))
    await bench.expect_silence()
    await bench.expect_counts(nodes=1, asks=0, allocations=0)


@case(111, "a withdrawn ask gives up the node that was kept for it", rule="protocol.md 10.1")
async def withdraw_reserved(bench: Bench) -> None:
    await victim_and_preemptor(bench)
    await bench.app("b2", "root.b")
    await bench.release("k")
    await bench.expect(updated("app", "Completing"))
    await bench.release("v", si.PREEMPTED_BY_SCHEDULER, app="b1")
    await bench.expect(updated("b1", "Completing"))
    await bench.start("m", app="b2", vcore=VICTIM_VCORE, node="n1")


@case(
    112,
    "a release without key takes everything, and the application completes",
    rule="protocol.md 16 DB-11",
    waits_s=COMPLETING_S,
)
async def release_all(bench: Bench) -> None:
    await bench.world()
    await bench.start("a", "b")
    await bench.send(allocation("c", NODE_VCORE))
    await bench.expect_silence()
    await bench.release("")
    gone = await bench.expect_set(released("a"), released("b"))
    check(gone[0].batch == gone[1].batch, "both are in one message")
    await bench.expect(updated("app", "Completing"))
    await bench.expect_silence()
    await bench.expect_counts(nodes=1, asks=0, allocations=0)
    await bench.clock.advance_time(COMPLETING_S)
    await bench.expect(updated("app", "Completed"))


@case(113, "a release for an unknown application is ignored", rule="protocol.md 10.1")
async def release_of_unknown_application(bench: Bench) -> None:
    await bench.reg()
    await bench.release("k", app="nobody")
    await bench.release("", app="nobody")
    await bench.expect_silence()


@case(114, "a real ask of a gang makes the core give up one placeholder", rule="protocol.md 10.3")
async def replace(bench: Bench) -> None:
    await add_replacing_ask(bench)


@case(115, "a confirmed placeholder becomes the real allocation on the same node", rule="protocol.md 10.3")
async def replace_confirmed(bench: Bench) -> None:
    await one_replaced(bench)
    await bench.expect_free({"n1": NODE_VCORE - 2 * ASK_VCORE})


@case(116, "a replacement is confirmed once", rule="protocol.md 10.4")
async def replace_confirmed_twice(bench: Bench) -> None:
    gone = await add_replacing_ask(bench)
    await bench.release(gone, si.PLACEHOLDER_REPLACED)
    await bench.expect(new("r", "n1"))
    await bench.release(gone, si.PLACEHOLDER_REPLACED)
    await bench.expect_silence()


@case(117, "a replacement that is never confirmed changes nothing", rule="protocol.md 10.3", waits_s=3)
async def replace_unconfirmed(bench: Bench) -> None:
    await add_replacing_ask(bench)
    await bench.clock.advance_time(3)
    await bench.expect_silence()
    await bench.expect_used("root.a", 2 * ASK_VCORE)


@case(118, "a replacement smaller than its placeholder is charged with its own size", rule="protocol.md 10.3")
async def replace_by_smaller(bench: Bench) -> None:
    await one_replaced(bench, real_vcore=ASK_VCORE // 2)
    await bench.expect_used("root.a", ASK_VCORE + ASK_VCORE // 2)
    await bench.expect_user(ASK_VCORE + ASK_VCORE // 2)
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE - ASK_VCORE // 2})


@case(
    119,
    "a real ask larger than its placeholders makes them all leave, and is placed like any other",
    rule="protocol.md 10.3",
)
async def replace_by_larger(bench: Bench) -> None:
    await whole_gang(bench, vcore=5000)
    await bench.send(allocation("r", 6000, group=GROUP))
    await bench.expect_set(released("p1", si.TIMEOUT), released("p2", si.TIMEOUT))
    await bench.expect_silence()
    await bench.release("p1", si.TIMEOUT)
    await bench.release("p2", si.TIMEOUT)
    await bench.expect(new("r", "n1"))


@case(120, "PLACEHOLDER_REPLACED for a real allocation is ignored", rule="protocol.md 10.4")
async def replace_real(bench: Bench) -> None:
    await one_allocated(bench)
    await bench.release("k", si.PLACEHOLDER_REPLACED)
    await bench.release("", si.PLACEHOLDER_REPLACED)
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE})


@case(121, "PLACEHOLDER_REPLACED for a placeholder that nothing replaces removes it", rule="protocol.md 10.4")
async def replace_unlinked(bench: Bench) -> None:
    await one_allocated(bench)
    await bench.send(make_placeholder("p", node="n1"))
    await bench.expect(new("p", "n1"))
    await bench.release("p", si.PLACEHOLDER_REPLACED)
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE})


@case(122, "stopping a placeholder that is being replaced confirms the replacement", rule="protocol.md 10.4")
async def replaced_is_stopped(bench: Bench) -> None:
    gone = await add_replacing_ask(bench)
    await bench.release(gone)
    await bench.expect(released(gone), new("r", "n1"))


@case(123, "stopping a replacement under way cancels it", rule="protocol.md 10.4")
async def replacement_is_stopped(bench: Bench) -> None:
    gone = await add_replacing_ask(bench)
    await bench.release("r")
    strays = await bench.read_until_quiet()
    check(not any(entry.kind is Kind.NEW for entry in strays), "expected no new for a replacement that was stopped")
    await bench.release(gone, si.PLACEHOLDER_REPLACED)
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE - ASK_VCORE})


@case(124, "a soft gang that waited too long goes on without its placeholders", rule="protocol.md 11", waits_s=2)
async def soft_timeout(bench: Bench) -> None:
    await gang_timeout(bench)
    state = (await bench.expect(updated("app", "Resuming")))[0]
    text = str(getattr(state.message, "message", ""))
    check(text == "ResourceReservationTimeout", f"expected ResourceReservationTimeout, got {text}")
    await bench.expect(released("p1", si.TIMEOUT), released("p2", si.TIMEOUT))


@case(125, "once the placeholders are gone, a soft gang is Accepted again", rule="protocol.md 10.3", waits_s=2)
async def soft_timeout_confirmed(bench: Bench) -> None:
    await soft_timeout(bench)
    # The placeholder that only waited is gone already, so a confirmation of its end changes nothing.
    await bench.release("p2", si.TIMEOUT)
    await bench.expect_silence()
    await bench.release("p1", si.TIMEOUT)
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()
    await bench.expect_free({"n1": NODE_VCORE})


@case(126, "a hard gang that waited too long fails", rule="protocol.md 11", waits_s=2)
async def hard_timeout(bench: Bench) -> None:
    await gang_timeout(bench, style="Hard")
    state = (await bench.expect(updated("app", "Failing")))[0]
    text = str(getattr(state.message, "message", ""))
    check(text == "ResourceReservationTimeout", f"expected ResourceReservationTimeout, got {text}")
    await bench.expect(released("p1", si.TIMEOUT), released("p2", si.TIMEOUT))
    await bench.release("p1", si.TIMEOUT)
    await bench.expect(updated("app", "Failed"))
    await bench.app()


@case(127, "placeholders that nobody needed leave a running application", rule="protocol.md 10.3", waits_s=2)
async def left_over_times_out(bench: Bench) -> None:
    timeout_s = find_timeout(bench)
    left = await one_replaced(bench, timeout_s=timeout_s)
    await bench.clock.advance_time(timeout_s + 1)
    await bench.expect(released(left, si.TIMEOUT))
    await bench.expect_silence()


@case(128, "a left-over placeholder holds up completion until it is gone", rule="protocol.md 11", waits_s=COMPLETING_S)
async def left_over_completes(bench: Bench) -> None:
    await bench.world()
    await bench.start("k")
    await bench.send(make_placeholder("p", node="n1"))
    await bench.expect(new("p", "n1"))
    await bench.release("k")
    await bench.expect(updated("app", "Completing"), released("k"))
    await bench.clock.advance_time(COMPLETING_S)
    await bench.expect(released("p", si.TIMEOUT))
    await bench.expect_silence()
    await bench.release("p", si.TIMEOUT)
    await bench.expect(updated("app", "Completed"))


async def victim_leaves(bench: Bench, termination: int, *echo: Want) -> None:
    """Ends victim v with *termination*, and expects the preemptor to be placed in its room."""
    await victim_and_preemptor(bench)
    await bench.expect_silence()
    await bench.release("v", termination, app="b1")
    await bench.expect(*echo, new("k", "n1", "app"), updated("b1", "Completing"), updated("app", "Running"))
    await bench.expect_silence()


@case(129, "a victim is released, confirmed without answer, and the ask is placed", rule="protocol.md 10.3")
async def preempt(bench: Bench) -> None:
    await victim_leaves(bench, si.PREEMPTED_BY_SCHEDULER)


@case(130, "a victim that the RM stops itself is answered, and the ask is placed", rule="protocol.md 10.4")
async def preempted_is_stopped(bench: Bench) -> None:
    await victim_leaves(bench, si.STOPPED_BY_RM, released("v"))


@case(131, "the confirmation of a placeholder that is gone already is ignored", rule="protocol.md 10.3")
async def late_confirmation(bench: Bench) -> None:
    await one_allocated(bench)
    await bench.send(make_placeholder("p", NODE_VCORE))
    await bench.release("p")
    await bench.release("p", si.TIMEOUT)
    await bench.expect_silence()


@case(132, "an allocation that the RM could not start is an ask again", rule="protocol.md 3.6")
async def scheduling_failed(bench: Bench) -> None:
    await bench.world()
    await bench.start("other", "k")
    # The node that refused it is drained for now, so that its return to the asks can be observed.
    await bench.node_action("n1", si.NodeInfo.DRAIN_NODE)
    await bench.release("k", si.SCHEDULING_FAILED_ON_RM)
    await bench.expect_silence()
    await bench.expect_counts(nodes=1, asks=1, allocations=1)
    await bench.node("n2")
    await bench.expect(new("k", "n2"))
    await bench.expect_silence()
    await bench.expect_free({"n2": NODE_VCORE - messages.ASK_VCORE})
