"""Cases about callbacks: questions to the shim, notices, and a core without a callback stream."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from kornel.conformance import configs, messages
from kornel.conformance.bench import Bench
from kornel.conformance.callback_peer import EVENT_PUSH_S, Answers, CallbackPeer
from kornel.conformance.case import case
from kornel.conformance.configs import leaf_text, queues
from kornel.conformance.entries import app_accepted, new, node_accepted, released, updated
from kornel.conformance.messages import ASK_VCORE, NODE_VCORE, allocation
from kornel.conformance.outcome import check
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2

BIG = NODE_VCORE + 1
NO_IMAGE = "the image is not there"
EVENT_PAUSE_NS = 15 * 10**9
CAPACITY = 1000
STATE_S = 2.0
TIMEOUT_S = 2.0
DEPENDENT = {messages.DEPENDENT_TAG: "true"}


def refuse_n1(question: callback_pb2.PredicatesQuestion) -> Mapping[str, str]:
    """Refuses n1 for every ask."""
    return {node: NO_IMAGE for node in question.node_ids if node == "n1"}


def refuse_all(question: callback_pb2.PredicatesQuestion) -> Mapping[str, str]:
    """Refuses every node for every ask."""
    return dict.fromkeys(question.node_ids, NO_IMAGE)


@case(141, "a node that predicates refuse is not used, and the ask tells why", rule="protocol.md 13")
async def refused_node(bench: Bench) -> None:
    await bench.world()
    peer = await bench.attach_peer(Answers(predicates=refuse_n1))
    await bench.send(allocation("k"))
    await bench.expect(updated("app", "Accepted"))
    await peer.wait_until(lambda: peer.questions, "to be asked whether k may run on n1")
    question = peer.questions[0]
    asked = (question.application_id, question.allocation_key, list(question.node_ids), question.allocate)
    check(asked == ("app", "k", ["n1"], True), f"expected to be asked whether app may place k on n1, got {asked}")
    await bench.expect_silence()
    await bench.expect_failure("k", NO_IMAGE)
    await bench.node("n2")
    await bench.expect(updated("app", "Running"), new("k", "n2"))
    await bench.expect_silence()


@case(142, "an ask that predicates keep off every node waits, with an event every 15 s at most",
      rule="protocol.md 13", waits_s=30)  # fmt: skip
async def refused_everywhere(bench: Bench) -> None:
    await bench.world()
    peer = await bench.attach_peer(Answers(predicates=refuse_all, events=True))
    await bench.send(allocation("k"))
    await bench.expect(updated("app", "Accepted"))
    for number in range(2, 14):
        # A new node makes the core try again, however it stores refused asks.
        await bench.node(f"n{number}")
        await bench.clock.advance_time(EVENT_PUSH_S)
        await bench.expect_silence()
    events = [e for e in peer.events if e.type == si.EventRecord.REQUEST and e.objectID == "k"]
    check(events, "expected an event that tells of the refusals")
    check(all(e.referenceID == "app" and e.message for e in events), "the events name the application and the reason")
    times = [event.timestampNano for event in events]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    check(all(pause >= EVENT_PAUSE_NS for pause in pauses), f"expected 15 s between events, got {pauses} ns")
    await bench.expect_counts(nodes=13, asks=1, allocations=0)


@case(143, "without a callback stream of the shim everything is allowed", rule="protocol.md 13")
async def nobody_listens(bench: Bench) -> None:
    await bench.world()
    await bench.start("k", node="n1")
    await bench.ask_and_place("k2")


async def expect_failures(peer: CallbackPeer, *keys: str) -> None:
    """Expect the shim to have received FAILED for each of *keys* once, and nothing else."""
    await peer.wait_until(lambda: len(peer.states) >= len(keys), f"FAILED for {' and '.join(keys)}")
    got = sorted((state.applicationID, state.allocationKey, state.state) for state in peer.states)
    wanted = sorted(("app", key, si.UpdateContainerSchedulingStateRequest.FAILED) for key in keys)
    check(got == wanted, f"expected FAILED for {keys}, got {got}")


@case(
    144,
    "an ask that quotas allow, but for which no node has room, is reported once",
    rule="protocol.md 13",
    waits_s=4 * STATE_S,
)
async def outstanding(bench: Bench) -> None:
    await bench.world()
    peer = await bench.attach_peer(Answers(scheduling_states=True))
    await bench.send(allocation("k", BIG))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()
    await bench.clock.advance_time(STATE_S)
    await expect_failures(peer, "k")
    await bench.node("n2")
    for _ in range(3):
        await bench.clock.advance_time(STATE_S)
        await bench.expect_silence()
    await expect_failures(peer, "k")


@case(145, "an ask above the max of its queue is not reported", rule="protocol.md 13", waits_s=2 * STATE_S)
async def above_max(bench: Bench) -> None:
    await bench.reg(queues(leaf_text("a", maximum="{vcore: 1}"), leaf_text("b")))
    await bench.node("n1")
    await bench.app("limited")
    await bench.app("app", "root.b")
    peer = await bench.attach_peer(Answers(scheduling_states=True))
    await bench.send(allocation("k", ASK_VCORE + 1, app="limited"), allocation("control", BIG))
    await bench.expect(updated("limited", "Accepted"), updated("app", "Accepted"))
    await bench.expect_silence()
    for _ in range(2):
        await bench.clock.advance_time(STATE_S)
        await bench.expect_silence()
    # The ask that only lacks room shows that reports arrive at all.
    await expect_failures(peer, "control")


@case(146, "an ask for one node is not reported", rule="protocol.md 13", waits_s=2 * STATE_S)
async def one_node_only(bench: Bench) -> None:
    await bench.world()
    peer = await bench.attach_peer(Answers(scheduling_states=True))
    required = {messages.REQUIRED_NODE_TAG: "n1"}
    await bench.send(allocation("k", BIG, tags=required), allocation("control", BIG))
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()
    for _ in range(2):
        await bench.clock.advance_time(STATE_S)
        await bench.expect_silence()
    await expect_failures(peer, "control")


@case(147, "events beyond the capacity of an interval are lost", rule="protocol.md 13", waits_s=3 * EVENT_PUSH_S)
async def event_capacity(bench: Bench) -> None:
    await bench.close()
    await bench.register(extra={"event.requestCapacity": str(CAPACITY), "event.trackingEnabled": "true"})
    await bench.open_streams()
    peer = await bench.attach_peer(Answers(events=True))
    # The first events mark the beginning of an interval, so that all others fall into the same one.
    await bench.send_applications(messages.application("app"))
    await bench.expect(app_accepted("app"))
    await bench.clock.advance_time(EVENT_PUSH_S)
    await peer.wait_until(lambda: peer.events, "events of the application")
    before = len(peer.events)
    asks = [allocation(f"k{number}", BIG) for number in range(5 * CAPACITY)]
    await bench.send(*asks)
    await bench.expect(updated("app", "Accepted"))
    await bench.expect_silence()
    for _ in range(2):
        await bench.clock.advance_time(EVENT_PUSH_S)
        await bench.expect_silence()
    got = len(peer.events) - before
    check(got == CAPACITY, f"expected {CAPACITY} events of at least {len(asks)}, got {got}")


def needs_two(question: callback_pb2.PreemptionPredicatesQuestion) -> int:
    """Answers that the first two of three victims have to leave, and that no other number helps."""
    arguments = question.arguments
    helps = len(arguments.preemptAllocationKeys) == 3 and arguments.startIndex in (0, 1)
    return 1 if helps else -1


@case(148, "as many victims are released as preemption predicates say, and no more", rule="protocol.md 13", waits_s=1)
async def preemption_predicates(bench: Bench) -> None:
    await bench.reg(configs.PREEMPTION)
    peer = await bench.attach_peer(Answers(predicates=lambda _: {}, preemption_predicates=needs_two))
    await bench.node("n1", 3 * ASK_VCORE)
    await bench.app("b1", "root.b")
    victims = ("a", "b", "c")
    await bench.send(*(allocation(key, app="b1", priority=number) for number, key in enumerate(victims)))
    await bench.expect(updated("b1", "Accepted"), updated("b1", "Running"))
    await bench.expect_set(*(new(key, "n1", "b1") for key in victims))
    await bench.app()
    await bench.send(allocation("k", policy=(True, True), priority=10))
    await bench.expect(updated("app", "Accepted"))
    await bench.clock.advance_time(1)
    await bench.expect_set(*(released(key, si.PREEMPTED_BY_SCHEDULER, app="b1") for key in ("a", "b")))
    await bench.expect_silence()
    listed = list(peer.preemption_questions[0].arguments.preemptAllocationKeys)
    check(listed == list(victims), f"expected to be asked about {victims} in the order of eviction, got {listed}")


@case(149, "a shim's state that is not JSON shows as an error in the dump", rule="rest.md 8")
async def bad_state_dump(bench: Bench) -> None:
    await bench.reg()
    await bench.send_nodes(messages.full_node("n1"))
    await bench.expect(node_accepted("n1"))
    await bench.attach_peer(Answers(state_dump="no JSON at all"))
    diagnostics = (await bench.state_dump()).get("rm_diagnostics")
    found = isinstance(diagnostics, dict) and any(key.lower() == "error" and text for key, text in diagnostics.items())
    check(found, f"expected rm_diagnostics with an error, got {diagnostics!r}")


def withhold_answer(_: callback_pb2.PredicatesQuestion) -> Mapping[str, str] | None:
    """Gives no answer, so that the case can answer later."""
    return None


def asked_about(peer: CallbackPeer) -> list[str]:
    """Returns the keys of all questions so far, in order."""
    return [question.allocation_key for question in peer.questions]


async def dependent_world(bench: Bench, answers: Answers) -> CallbackPeer:
    """Register, with two nodes and an application, and attach *answers*."""
    await bench.world()
    await bench.node("n2")
    return await bench.attach_peer(answers)


@case(160, "asks that depend on other placements are asked about one at a time, those before them at once",
      rule="protocol.md 13")  # fmt: skip
async def one_at_a_time(bench: Bench) -> None:
    peer = await dependent_world(bench, Answers(predicates=withhold_answer, timeout_ms=60_000))
    await bench.send(
        allocation("p1"), allocation("p2"), allocation("d1", tags=DEPENDENT), allocation("d2", tags=DEPENDENT),
        allocation("p3"),
    )  # fmt: skip
    await bench.expect(updated("app", "Accepted"))
    await peer.wait_until(lambda: len(peer.questions) >= 3, "three questions")
    await bench.expect_silence()
    check(sorted(asked_about(peer)) == ["d1", "p1", "p2"], f"expected d1, p1 and p2, got {asked_about(peer)}")
    marked = {question.allocation_key for question in peer.questions if question.dependent}
    check(marked == {"d1"}, f"expected d1 alone to be marked as dependent, got {sorted(marked)}")
    await peer.answer_questions("p1", "d1")
    await bench.expect(updated("app", "Running"))
    await bench.expect_set(new("p1"), new("d1"))
    await bench.expect_silence()
    check("d2" not in asked_about(peer), "d2 was asked about before d1 was acknowledged")
    await peer.acknowledge_placement("p1")
    await bench.expect_silence()
    check("d2" not in asked_about(peer), "d2 was asked about before d1 was acknowledged")
    await peer.acknowledge_placement("d1")
    await peer.wait_until(lambda: "d2" in asked_about(peer), "to be asked about d2 once d1 is in place")
    await bench.expect_silence()
    check("p3" not in asked_about(peer), "p3, which comes behind d2, was asked about before d2 was judged")
    await peer.answer_questions("d2")
    await bench.expect(new("d2"))
    await peer.wait_until(lambda: "p3" in asked_about(peer), "to be asked about p3 once d2 is judged")


@case(161, "of two positive answers that depend on placements one counts, and the other question is asked again",
      rule="protocol.md 13")  # fmt: skip
async def asked_again(bench: Bench) -> None:
    peer = await dependent_world(bench, Answers(predicates=withhold_answer, depends=True, timeout_ms=60_000))
    await bench.send(allocation("k1"), allocation("k2"))
    await bench.expect(updated("app", "Accepted"))
    await peer.wait_until(lambda: len(peer.questions) == 2, "two questions")
    await peer.answer_questions("k1", "k2")
    await bench.expect(updated("app", "Running"), new("k1"))
    await bench.expect_silence()
    await peer.acknowledge_placement("k1")
    await peer.wait_until(lambda: len(peer.questions) == 3, "to be asked about k2 again")
    check(asked_about(peer)[2] == "k2", f"expected to be asked about k2 again, got {asked_about(peer)}")
    await peer.answer_questions("k2")
    await bench.expect(new("k2"))


@case(162, "a dependent placement that is not acknowledged delays the next question by the timeout",
      rule="protocol.md 13", waits_s=TIMEOUT_S)  # fmt: skip
async def nobody_acknowledges(bench: Bench) -> None:
    peer = await dependent_world(bench, Answers(predicates=withhold_answer, timeout_ms=int(TIMEOUT_S * 1_000)))
    await bench.send(allocation("d1", tags=DEPENDENT), allocation("d2", tags=DEPENDENT))
    await bench.expect(updated("app", "Accepted"))
    await peer.wait_until(lambda: peer.withheld, "a question")
    await peer.answer_questions("d1")
    await bench.expect(updated("app", "Running"), new("d1"))
    await bench.clock.advance_time(TIMEOUT_S)
    await peer.wait_until(lambda: "d2" in asked_about(peer), "to be asked about d2 when the timeout is over")


@case(163, "a placement that was acknowledged with its answer but not made is taken back", rule="protocol.md 13")
async def taken_back(bench: Bench) -> None:
    peer = await dependent_world(bench, Answers(predicates=withhold_answer, timeout_ms=60_000))
    await bench.send(allocation("d1", tags=DEPENDENT), allocation("d2", tags=DEPENDENT))
    await bench.expect(updated("app", "Accepted"))
    await peer.wait_until(lambda: peer.withheld, "a question")
    held = peer.questions[0].node_ids[0]
    await bench.node_action(held, si.NodeInfo.DRAIN_NODE)
    await bench.expect_silence()
    await peer.answer_questions("d1", acknowledge=True)
    await peer.wait_until(lambda: len(peer.questions) == 2, "the next question")
    check(peer.not_placed == ["d1"], f"expected to hear that d1 was not placed, got {peer.not_placed}")
    await bench.expect_silence()


@case(170, "who awaits placements itself is asked the next dependent question with the placement before it",
      rule="protocol.md 13")  # fmt: skip
async def asked_with_the_placement(bench: Bench) -> None:
    peer = await dependent_world(bench, Answers(predicates=withhold_answer, awaits=True, timeout_ms=60_000))
    check(peer.names_placements, "expected the core to confirm that it names placements")
    await bench.send(allocation("d1", tags=DEPENDENT), allocation("d2", tags=DEPENDENT))
    await bench.expect(updated("app", "Accepted"))
    await peer.wait_until(lambda: peer.withheld, "a question")
    await bench.expect_silence()
    check(asked_about(peer) == ["d1"], f"expected to be asked about d1 alone, got {asked_about(peer)}")
    first = peer.questions[0]
    check(not first.HasField("after"), "expected nothing to await before the first placement")
    await peer.answer_questions("d1")
    await bench.expect(updated("app", "Running"), new("d1"))
    await peer.wait_until(lambda: len(peer.questions) == 2, "to be asked about d2 without an acknowledgement")
    second = peer.questions[1]
    named = second.after.allocation_key, second.after.node_id
    check(second.allocation_key == "d2", f"expected to be asked about d2, got {second.allocation_key}")
    check(named == ("d1", first.node_ids[0]), f"expected d2 to come after d1 on {first.node_ids[0]}, got {named}")
    await peer.answer_questions("d2")
    await bench.expect(new("d2"))
