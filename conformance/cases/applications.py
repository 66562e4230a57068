"""Cases about applications: which ones are accepted, in which queue they are placed, and how they are removed."""

from __future__ import annotations

import json

from kornel.conformance import configs, messages
from kornel.conformance.arrangements import gang_timeout
from kornel.conformance.bench import Bench
from kornel.conformance.case import case
from kornel.conformance.configs import leaf_text, queues
from kornel.conformance.entries import app_accepted, app_rejected, new, rejected, released, updated
from kornel.conformance.messages import FORCE_TAG, NODE_VCORE, application
from kornel.conformance.outcome import check
from kornel.si.v1 import si_pb2 as si

FORCED = {FORCE_TAG: "true"}
RECOVERY_QUEUE = "root.@recovery@"


@case(48, "an added application is accepted, and New", rule="protocol.md 6.2")
async def add(bench: Bench) -> None:
    await bench.reg()
    await bench.app()
    await bench.expect_silence()


@case(49, "a second application of the same ID is refused, the first one untouched", rule="protocol.md 6.1")
async def add_twice(bench: Bench) -> None:
    await bench.world()
    await bench.send_applications(application("app"))
    await bench.expect(app_rejected("app", "application-exists"))
    await bench.start("k")


@case(50, "an application for a queue that nobody may create is refused", rule="protocol.md 6.1")
async def missing_queue(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("app", "root.missing"))
    await bench.expect(app_rejected("app", "no-queue"))
    await bench.expect_silence()


@case(51, "a forced application that no rule places goes to the recovery queue", rule="protocol.md 6.4")
async def forced(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("app", "root.missing", tags=FORCED))
    await bench.expect(app_accepted("app"))
    await bench.expect_queue(RECOVERY_QUEUE, present=True)
    await bench.node("n1")
    await bench.start("k")


@case(52, "the recovery queue is only for forced applications", rule="protocol.md 6.4")
async def recovery_queue_is_closed(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("early", RECOVERY_QUEUE))
    await bench.expect(app_rejected("early", "no-queue"))
    await bench.send_applications(application("forced", "root.missing", tags=FORCED))
    await bench.expect(app_accepted("forced"))
    await bench.send_applications(application("late", RECOVERY_QUEUE))
    await bench.expect(app_rejected("late", "no-queue"))


@case(53, "an application without user is refused", rule="protocol.md 6.1")
async def no_user(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("app", user=""))
    await bench.expect(app_rejected("app", "user-invalid"))


@case(54, "a forced application without user is taken in", rule="protocol.md 6.4")
async def forced_without_user(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("app", user="", tags=FORCED))
    await bench.expect(app_accepted("app"))


@case(55, "a forced application without user information is taken in", rule="protocol.md 16 DB-17")
async def forced_without_ugi(bench: Bench) -> None:
    await bench.world()
    await bench.send_applications(application("app2", user=None, tags=FORCED))
    await bench.expect(app_accepted("app2"))
    await bench.start("k", app="app2")


@case(56, "a user name with forbidden characters is refused, groups or not", rule="protocol.md 6.1")
async def bad_user(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(
        application("app", user="bad user!", groups=("dev",)), application("app2", user="bad user!")
    )
    await bench.expect(app_rejected("app", "user-invalid"), app_rejected("app2", "user-invalid"))


@case(57, "a user without access to the queue is refused", rule="protocol.md 6.1")
async def no_access(bench: Bench) -> None:
    await bench.reg(configs.NO_ACCESS)
    await bench.send_applications(application("app"))
    await bench.expect(app_rejected("app", "no-queue"))
    await bench.send_applications(application("app", user="somebody"))
    await bench.expect(app_accepted("app"))


@case(58, "a gang needs a fifo queue", rule="protocol.md 6.1")
async def gang_in_fair_queue(bench: Bench) -> None:
    await bench.reg(queues(leaf_text("a", properties="{application.sort.policy: fair}")))
    await bench.send_applications(application("app", gang={"vcore": 1000}))
    await bench.expect(app_rejected("app", "gang-needs-fifo"))


@case(59, "a gang larger than its queue may ever be is refused", rule="protocol.md 6.1")
async def gang_above_max(bench: Bench) -> None:
    await bench.reg(queues(leaf_text("a", maximum="{vcore: 1}")))
    await bench.send_applications(application("app", gang={"vcore": 10_000}))
    await bench.expect(app_rejected("app", "gang-too-large"))


@case(60, "a type without limit does not limit a gang", rule="protocol.md 6.1")
async def gang_of_another_type(bench: Bench) -> None:
    await bench.reg(queues(leaf_text("a", maximum="{memory: 1}")))
    await bench.send_applications(application("app", gang={"vcore": 10_000}))
    await bench.expect(app_accepted("app"))


@case(61, "the size of the cluster does not limit a gang", rule="protocol.md 6.1")
async def gang_above_cluster(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("app", gang={"vcore": 10**15}))
    await bench.expect(app_accepted("app"))


@case(62, "the quota tag limits a dynamic queue", rule="protocol.md 4.3")
async def quota_of_dynamic_queue(bench: Bench) -> None:
    await bench.reg("")
    await bench.node("n1", 2 * NODE_VCORE)
    quota = json.dumps({"resources": {"vcore": {"value": 10_000}}})
    tags = {"namespace": "dev", "namespace.resourcequota": quota}
    await bench.send_applications(application("app", "", tags=tags))
    await bench.expect(app_accepted("app"))
    await bench.start("k1", vcore=10_000)
    await bench.send(messages.allocation("k2", 1))
    await bench.expect_silence()


@case(63, "the quota tag does not touch a managed queue", rule="protocol.md 4.3")
async def quota_of_managed_queue(bench: Bench) -> None:
    await bench.reg()
    await bench.node("n1")
    quota = json.dumps({"resources": {"vcore": {"value": 500}}})
    await bench.send_applications(application("app", tags={"namespace.resourcequota": quota}))
    await bench.expect(app_accepted("app"))
    await bench.start("k")


@case(64, "all additions of one request are answered in one response", rule="protocol.md 6")
async def one_response(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("app1"), application("app2", "root.missing"), application("app3"))
    answers = await bench.expect_set(app_accepted("app1"), app_accepted("app3"), app_rejected("app2", "no-queue"))
    check(len({answer.batch for answer in answers}) == 1, "the three answers are in one message")
    await bench.expect_silence()


@case(65, "a rejected application may try again", rule="protocol.md 6.2")
async def try_again(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("app2", "root.missing"))
    await bench.expect(app_rejected("app2", "no-queue"))
    await bench.app("app2")


@case(66, "removing an unknown application is ignored", rule="protocol.md 6.5")
async def remove_unknown(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(remove=["app"])
    await bench.send_applications(remove=["app"], partition="gpu")
    await bench.expect_silence()


@case(
    67, "a removed application releases its allocations in one message, its asks without a word", rule="protocol.md 6.5"
)
async def remove_running(bench: Bench) -> None:
    await bench.world()
    await bench.start("a", "b")
    await bench.send(messages.allocation("c", NODE_VCORE))
    await bench.expect_silence()
    await bench.send_applications(remove=["app"])
    await bench.expect(updated("app", "Completing"))
    gone = await bench.expect_set(released("a"), released("b"))
    check(gone[0].batch == gone[1].batch, "both are in one message")
    await bench.expect_silence()
    await bench.expect_counts(nodes=1, asks=0, allocations=0)
    await bench.expect_free({"n1": NODE_VCORE})
    # A removal also ends the timers of the application: nothing may happen after the 30 s for which it would otherwise
    # be Completing.
    await bench.expect_silence_after(31)
    await bench.app()


@case(68, "a removed application that only asked goes through Completing to Completed", rule="protocol.md 6.5")
async def remove_asking(bench: Bench) -> None:
    await bench.world()
    await bench.send(messages.allocation("k", NODE_VCORE + 1))
    await bench.expect(updated("app", "Accepted"))
    await bench.send_applications(remove=["app"])
    await bench.expect(updated("app", "Completing"), updated("app", "Completed"))
    await bench.expect_silence()


@case(69, "a removed New application is gone without a word", rule="protocol.md 6.5")
async def remove_new(bench: Bench) -> None:
    await bench.world()
    await bench.send_applications(remove=["app"])
    await bench.expect_silence()
    await bench.send(messages.allocation("k"))
    await bench.expect(rejected("k", "application-not-found"))


@case(70, "one request may add and remove the same application", rule="protocol.md 6")
async def add_and_remove(bench: Bench) -> None:
    await bench.reg()
    await bench.send_applications(application("app"), remove=["app"])
    await bench.expect(app_accepted("app"))
    await bench.expect_silence()
    await bench.send(messages.allocation("k"))
    await bench.expect(rejected("k", "application-not-found"))


@case(71, "a draining queue takes no application", rule="protocol.md 6.1")
async def draining_queue(bench: Bench) -> None:
    await bench.world(configs.TWO_LEAVES)
    await bench.start("k")
    await bench.update_configuration(configs.WITHOUT_A)
    await bench.send_applications(application("app2"))
    await bench.expect(app_rejected("app2", "no-queue"))
    await bench.update_configuration(configs.TWO_LEAVES)
    await bench.app("app2")


@case(72, "only the exact word Hard makes a hard gang", rule="protocol.md 2.3", waits_s=2)
async def lower_case_style(bench: Bench) -> None:
    await gang_timeout(bench, style="hard")
    await bench.expect(updated("app", "Resuming"), released("p1", si.TIMEOUT), released("p2", si.TIMEOUT))
    await bench.release("p1", si.TIMEOUT)
    await bench.expect(updated("app", "Accepted"))
    await bench.send(messages.allocation("k"))
    await bench.expect(updated("app", "Running"), new("k", "n1"))
