"""Bombs by callers who have proved who they are, on a core that asks: whether they may is looked up before anything
else, in a request that nobody has counted yet."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import grpc
import pytest

from kornel.si.v1 import si_pb2 as si
from kornel.v1 import callback_pb2, configuration_pb2, status_pb2
from kornel.v1.callback_pb2_grpc import CallbackServiceStub
from kornel.v1.status_pb2_grpc import StatusServiceStub
from tests.e2e.security.site import Issuer
from tests.hostile.attacked import AttackedCore
from tests.hostile.test_grpc_requests import EMPTY, OPTIONS, end_of
from tests.hostile.test_tokens import OPS, SHIM, guarded
from tests.ports import reserve_port

MIB: Final = 1 << 20
MANAGER: Final = {
    "/si.v1.Scheduler/UpdateAllocation": si.AllocationRequest(rmID="rm-1").SerializeToString(),
    "/si.v1.Scheduler/UpdateApplication": si.ApplicationRequest(rmID="rm-1").SerializeToString(),
    "/si.v1.Scheduler/UpdateNode": si.NodeRequest(rmID="rm-1").SerializeToString(),
    "/kornel.v1.CallbackService/Attach": b"",
}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedCore]:
    """A core that asks who calls; its bystander is the shim."""
    folder = tmp_path_factory.mktemp("guarded")
    with guarded(folder, f"127.0.0.1:{reserve_port()}", Issuer(folder)) as site:
        yield site.core


def end_with(core: AttackedCore, token: str, method: str, raw: bytes) -> grpc.StatusCode:
    with grpc.insecure_channel(core.address, OPTIONS) as channel:
        return end_of(channel, method, raw, metadata=[("authorization", f"Bearer {token}")])


@pytest.mark.parametrize("name", ["allocations", "asks", "releases", "applications", "removals", "nodes", "answers"])
@pytest.mark.parametrize("place", ["before", "behind"])
def test_first_message_of_a_manager(core: AttackedCore, name: str, place: str) -> None:
    """38 MB of empty entries in the first message of a stream, with the manager's name before or behind them: they
    cost what they weigh, three times, and no more."""
    method, entry = EMPTY[name]
    entries = entry * (38_000_000 // len(entry))
    raw = MANAGER[method] + entries if place == "before" else entries + MANAGER[method]
    with core.attack(refused_bytes=len(raw), memory_mib=128, health_s=0.5):
        assert end_with(core, SHIM, method, raw) is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("method", ["UpdateConfiguration", "RollbackConfiguration"])
def test_settings_of_somebody_who_may_set_none(core: AttackedCore, method: str) -> None:
    """12 MB of settings with names of four letters, by a caller who may only read."""
    settings = {f"{n:04x}"[-4:] + str(n % 7): "" for n in range(400_000)}
    some = configuration_pb2.UpdateConfigurationRequest(extra_config=settings).SerializeToString()
    raw = some * (12 * MIB // len(some))
    with core.attack(refused_bytes=len(raw)):
        end = end_with(core, OPS, f"/kornel.v1.ConfigurationService/{method}", raw)
        assert end in {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.PERMISSION_DENIED}


def test_question_that_is_too_long(core: AttackedCore) -> None:
    """12 MB of a field that nobody knows, in a question that is looked at before it may be asked."""
    raw = b"\x7a\x00" * (6 * MIB)
    with core.attack(refused_bytes=len(raw)):
        assert end_with(core, OPS, "/kornel.v1.StatusService/GetStatus", raw) is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ('{"pods": [' + "[]," * 20_000_000 + "[]]}", "characters, at most"),
        ('{"a":' * 900 + "1" + "}" * 900, "100 objects"),
    ],
    ids=["many values", "deep"],
)
def test_state_that_is_a_bomb(core: AttackedCore, state: str, why: str) -> None:
    """60 MB of empty lists, or values that no writer of JSON would nest as deeply, as what a shim says of itself: the
    dump tells why they are left out."""
    asked: queue.SimpleQueue[callback_pb2.AttachRequest | None] = queue.SimpleQueue()
    subscription = callback_pb2.Subscription(rm_id="rm-1", state_dump=True, timeout_ms=20_000)
    asked.put(callback_pb2.AttachRequest(subscription=subscription))
    dumps: list[str] = []

    def dump() -> None:
        with grpc.insecure_channel(core.address, OPTIONS) as operator:
            answer = StatusServiceStub(operator).GetStateDump(
                status_pb2.GetStateDumpRequest(), metadata=[("authorization", f"Bearer {SHIM}")]
            )
            dumps.append(answer.json)

    with grpc.insecure_channel(core.address, OPTIONS) as channel, ExitStack() as held:
        answers = CallbackServiceStub(channel).Attach(
            iter(asked.get, None), metadata=[("authorization", f"Bearer {SHIM}")]
        )
        held.callback(asked.put, None)
        assert next(answers).HasField("attached")
        # The message is held in parts, as a whole, parsed, and as a text.
        with core.attack(refused_bytes=len(state), memory_mib=320, health_s=0.5):
            dumping = threading.Thread(target=dump)
            dumping.start()
            question = next(answers).state_dump
            answer = callback_pb2.StateDumpAnswer(question_id=question.question_id, json=state)
            asked.put(callback_pb2.AttachRequest(state_dump=answer))
            dumping.join()
    assert why in json.loads(dumps[0])["rm_diagnostics"]["error"]
