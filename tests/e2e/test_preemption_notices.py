"""A shim that is told before its work is taken: notices, replies and withdrawals over the wire, real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kornel.core.engine.engine import Engine
from kornel.core.service.machine.clock import SECOND_NS
from kornel.shim_client import (
    Ask,
    CallbackAttachment,
    CallbackHandler,
    NoticeReply,
    PreemptionNotice,
    PreemptionWithdrawal,
    Released,
    ShimClient,
)
from kornel.shim_client.asks import resource
from kornel.si.v1 import si_pb2 as si
from tests.e2e.harness import Core, create, running_core
from tests.waiting import until

CONFIG = """
partitions:
  - name: default
    preemption:
      monitor: {{enabled: true, interval_ms: 1000, max_wait_ms: 5000, per_round: 1, natural_factor: 1{more}}}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {{name: a, resources: {{guaranteed: {{f: 2}}}}}}
          - {{name: b, resources: {{guaranteed: {{f: 2}}}}}}
"""


class Listener(CallbackHandler):
    """Keeps what it hears; replies with ``reply``."""

    def __init__(self, reply: NoticeReply | None = None) -> None:
        self.reply = reply
        self.notices: list[PreemptionNotice] = []
        self.withdrawn: list[PreemptionWithdrawal] = []

    async def preemption_notice(self, notice: PreemptionNotice) -> NoticeReply | None:
        self.notices.append(notice)
        return self.reply

    async def preemption_withdrawn(self, withdrawal: PreemptionWithdrawal) -> None:
        self.withdrawn.append(withdrawal)


class Shim:
    """A registered client whose application in a holds the four units there are, while b wants two."""

    def __init__(self, core: Core, client: ShimClient, attachment: CallbackAttachment) -> None:
        self.core = core
        self.client = client
        self.attachment = attachment
        self.released: list[Released] = []

    async def listen(self) -> None:
        async for update in self.client.updates():
            if isinstance(update, Released):
                self.released.append(update)

    async def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.core.settle()
            self.core.clock.advance(SECOND_NS)
        await self.core.settle()


@asynccontextmanager
async def running_shim(listener: Listener, more: str = "", engine: Engine | None = None) -> AsyncIterator[Shim]:
    async with running_core(engine) as core, ShimClient(core.address, "rm-1") as client:
        await client.register(config=CONFIG.format(more=more))
        shim = Shim(core, client, await client.attach_callbacks(listener))
        listening = asyncio.create_task(shim.listen())
        await client.create_nodes([create("n", f=4)])
        await client.add_applications(
            [
                si.AddApplicationRequest(
                    applicationID=f"app-{name}",
                    queueName=f"root.{name}",
                    partitionName="default",
                    ugi=si.UserGroupInformation(user="ann"),
                )
                for name in "ab"
            ]
        )
        await client.report_allocations(
            [
                si.Allocation(
                    allocationKey=f"a{at}",
                    applicationID="app-a",
                    nodeID="n",
                    resourcePerAlloc=resource({"f": 1}),
                    allocationTags={"creationTime": str(at + 1)},
                )
                for at in range(4)
            ]
        )
        await client.submit_asks([Ask(f"b{at}", "app-b", {"f": 1}, allow_preempt_other=True) for at in range(2)])
        yield shim
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_notice_then_release_at_the_deadline() -> None:
    """Everything a notice says reaches the handler; at the deadline the listed ones are released, and say why."""
    listener = Listener()
    async with running_shim(listener) as shim:
        await shim.pass_seconds(2)
        await until(lambda: listener.notices, "the notice")
        (notice,) = listener.notices
        assert (notice.partition, notice.application_id, notice.kind) == ("[rm-1]default", "app-a", "monitor")
        assert (notice.at_risk, notice.strict, notice.need) == (("a3", "a2"), (), {"f": 2})
        assert notice.reason == "queue root.a holds more than its share"
        assert notice.deadline_ms > 1_700_000_000_000
        await shim.pass_seconds(3)
        assert shim.released == []
        await shim.pass_seconds(3)
        await until(lambda: len(shim.released) == 2, "both to be released")
        assert {update.key for update in shim.released} == {"a2", "a3"}
        assert {update.termination for update in shim.released} == {si.TerminationType.PREEMPTED_BY_SCHEDULER}
        assert "preempted by the monitor" in shim.released[0].message


async def test_a_reply_puts_others_in_their_place() -> None:
    listener = Listener(NoticeReply(instead=("a0",), checkpoints={"a2": 17}))
    async with running_shim(listener) as shim:
        await shim.pass_seconds(8)
        await until(lambda: len(shim.released) == 2, "both to be released")
        await until(lambda: listener.withdrawn, "the exchange to be confirmed")
        assert [withdrawal.keys for withdrawal in listener.withdrawn] == [("a2",)]
        assert {update.key for update in shim.released} == {"a0", "a3"}


async def test_a_later_reply_counts_too() -> None:
    listener = Listener()
    async with running_shim(listener) as shim:
        await shim.pass_seconds(2)
        await until(lambda: listener.notices, "the notice")
        shim.attachment.answer_notice(listener.notices[0].notice_id, NoticeReply(instead=("a0", "a1")))
        await shim.core.settle()
        await shim.pass_seconds(1)
        await until(lambda: bool(listener.withdrawn), "the exchange to be confirmed")
        await shim.pass_seconds(6)
        await until(lambda: len(shim.released) == 2, "both to be released")
        assert {update.key for update in shim.released} == {"a0", "a1"}


async def test_strict_contract_lists_what_goes() -> None:
    listener = Listener(NoticeReply(instead=("a0", "a1")))
    async with running_shim(listener, ", contract: strict") as shim:
        await shim.pass_seconds(8)
        await until(lambda: len(shim.released) == 2, "both to be released")
        await until(lambda: listener.notices, "the notice")
        assert (listener.notices[0].strict, listener.notices[0].at_risk) == (("a3", "a2"), ())
        assert {update.key for update in shim.released} == {"a2", "a3"}


async def test_a_checkpoint_is_as_old_as_the_shim_says() -> None:
    """However the wall clock was set, which the shim dates it by; never younger than now."""
    engine = Engine()
    listener = Listener()
    async with running_shim(listener, engine=engine) as shim:
        await shim.pass_seconds(2)
        await until(lambda: listener.notices, "the notice")
        shim.core.clock.set_wall(-3_600 * SECOND_NS)
        saved_ns = shim.core.clock.wall_ns() - 7 * SECOND_NS
        reply = NoticeReply(checkpoints={"a2": saved_ns})
        shim.attachment.answer_notice(listener.notices[0].notice_id, reply)
        state = engine.partition("[rm-1]default")
        assert state is not None
        await until(lambda: bool(state.notices.checkpoints), "the checkpoint to be noted")
        assert shim.core.clock.now_ns() - state.notices.checkpoints["a2"] == 7 * SECOND_NS
