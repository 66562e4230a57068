"""A shim that is told before its work is taken: notices, replies and withdrawals over the wire, real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kornel.shim_client import CallbackHandler, NoticeReply, PreemptionNotice, PreemptionWithdrawal
from kornel.si.v1 import si_pb2 as si
from tests.e2e.preemption_wire import Shim, running_shim
from tests.preemption_notation import TaskCase, parse
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


FULL = """
case a holds the four units there are
queues  a{G=2} · b{G=2}
nodes   n=4
running a: a0 1@n t1, a1 1@n t2, a2 1@n t3, a3 1@n t4
"""


@asynccontextmanager
async def asked_for_two(listener: Listener, more: str = "", **settings: Any) -> AsyncIterator[Shim]:
    """A shim that *listener* hears for: a holds all four units, and b wants two of them."""
    (case,) = parse(FULL)
    async with running_shim(CONFIG.format(more=more), listener, **settings) as shim:
        await shim.set_up(case)
        for number in range(2):
            await shim.ask(TaskCase("b", f"b{number}", {"f": 1}))
        yield shim


async def pass_seconds(shim: Shim, seconds: int) -> None:
    """Let time pass a second at a time, as rounds are a second apart."""
    for _ in range(seconds):
        await shim.pass_seconds(1)


async def test_notice_then_release_at_the_deadline() -> None:
    """Everything a notice says reaches the handler; at the deadline the listed ones are released, and say why."""
    listener = Listener()
    async with asked_for_two(listener) as shim:
        await pass_seconds(shim, 2)
        await until(lambda: listener.notices, "the notice")
        (notice,) = listener.notices
        assert (notice.partition, notice.application_id, notice.kind) == ("[rm-1]default", "app-a", "monitor")
        assert (notice.at_risk, notice.strict, notice.need) == (("a3", "a2"), (), {"f": 2})
        assert notice.reason == "queue root.a holds more than its share"
        assert notice.deadline_ms > 1_700_000_000_000
        await pass_seconds(shim, 3)
        assert shim.released == []
        await pass_seconds(shim, 3)
        await until(lambda: len(shim.released) == 2, "both to be released")
        assert {update.key for update in shim.released} == {"a2", "a3"}
        assert {update.termination for update in shim.released} == {si.TerminationType.PREEMPTED_BY_SCHEDULER}
        assert "preempted by the monitor" in shim.released[0].message


async def test_a_later_reply_counts_too() -> None:
    listener = Listener()
    async with asked_for_two(listener) as shim:
        await pass_seconds(shim, 2)
        await until(lambda: listener.notices, "the notice")
        assert shim.attachment is not None
        shim.attachment.answer_notice(listener.notices[0].notice_id, NoticeReply(instead=("a0", "a1")))
        await shim.core.settle()
        await pass_seconds(shim, 1)
        await until(lambda: bool(listener.withdrawn), "the exchange to be confirmed")
        await pass_seconds(shim, 6)
        await until(lambda: len(shim.released) == 2, "both to be released")
        assert {update.key for update in shim.released} == {"a0", "a1"}
