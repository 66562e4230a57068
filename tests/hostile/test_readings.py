"""Configurations to be judged and questions to be answered, many at once: everybody else goes on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import grpc
import pytest

from kornel.v1 import configuration_pb2, configuration_pb2_grpc, explain_pb2, explain_pb2_grpc
from tests.e2e.harness import CONFIG
from tests.hostile.attacked import AttackedCore
from tests.hostile.test_http_requests import POST, answer, connected

LARGE: Final = (
    "partitions:\n  - name: default\n    queues:\n      - name: root\n        submitacl: '*'\n        queues:\n"
    + "".join(
        f"          - {{name: q{n}, resources: {{guaranteed: {{vcore: 1, memory: 1Gi}}, max: {{vcore: 10}}}}}}\n"
        for n in range(22_000)
    )
)
"""Two megabytes, which take some ten seconds."""

CHANGE_S: Final = 1.0


def change_s(core: AttackedCore) -> float:
    """How long it takes now to bring a configuration into force: as a registration does, but the shim stays."""
    with grpc.insecure_channel(core.address) as channel:
        began = time.monotonic()
        configuration_pb2_grpc.ConfigurationServiceStub(channel).UpdateConfiguration(
            configuration_pb2.UpdateConfigurationRequest(rm_id="rm-1", config=f"{CONFIG}# {began}\n"), timeout=60
        )
        return time.monotonic() - began


def post(core: AttackedCore) -> bytes:
    """The beginning of the answer to a text that is to be judged; empty: there was none yet."""
    body = LARGE.encode()
    with connected(core) as connection:
        return answer(connection, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body, patience_s=4)[:12]


def test_questions_at_once(core: AttackedCore) -> None:
    """Sixty gangs of ten thousand, of which some are turned away."""
    question = explain_pb2.WhatIfRequest(
        ask=explain_pb2.SupposedAsk(queue="root.a", resources={"vcore": 1}, count=10_000)
    )
    # Over three connections: one may have no more than 32 calls at once, and its others would wait at the client.
    own = [("grpc.use_local_subchannel_pool", 1)]
    with ExitStack() as channels, core.attack(processor_s=60):
        opened = [channels.enter_context(grpc.insecure_channel(core.address, options=own)) for _ in range(3)]
        calls = [explain_pb2_grpc.ExplainServiceStub(channel).WhatIf for channel in opened]
        futures = [call.future(question, timeout=60) for call in calls for _ in range(20)]
        codes = [future.code() for future in futures]
    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_questions_beside_a_large_preview(core: AttackedCore) -> None:
    """Gangs are asked about while a configuration of two megabytes is tried, and right after that."""
    question = explain_pb2.WhatIfRequest(
        ask=explain_pb2.SupposedAsk(queue="root.a", resources={"vcore": 1}, count=10_000)
    )
    preview = configuration_pb2.PreviewConfigurationRequest(config=LARGE)
    with grpc.insecure_channel(core.address) as channel, core.attack(processor_s=60):
        tried = configuration_pb2_grpc.ConfigurationServiceStub(channel).PreviewConfiguration.future(
            preview, timeout=90
        )
        call = explain_pb2_grpc.ExplainServiceStub(channel).WhatIf
        while not tried.done():
            call(question, timeout=60)
        for future in [call.future(question, timeout=60) for _ in range(20)]:
            assert future.code() is grpc.StatusCode.OK
    assert len(tried.result().queues) > 20_000


def test_twenty_large_texts_over_http(core: AttackedCore) -> None:
    with core.attack(processor_s=30), ThreadPoolExecutor(20) as pool:
        answers = pool.map(lambda _: post(core), range(20))
        time.sleep(1)
        assert change_s(core) <= CHANGE_S
        assert b"HTTP/1.1 503" in set(answers), "there is a limit"


@pytest.mark.parametrize("method", ["ValidateConfiguration", "PreviewConfiguration"])
def test_twenty_large_texts_over_grpc(core: AttackedCore, method: str) -> None:
    request = {
        "ValidateConfiguration": configuration_pb2.ValidateConfigurationRequest(config=LARGE),
        "PreviewConfiguration": configuration_pb2.PreviewConfigurationRequest(config=LARGE),
    }[method]
    # Sixteen of them wait, each in parts, as a whole and as a text.
    with grpc.insecure_channel(core.address) as channel, core.attack(processor_s=60, memory_mib=96):
        call = getattr(configuration_pb2_grpc.ConfigurationServiceStub(channel), method)
        futures = [call.future(request, timeout=4) for _ in range(20)]
        time.sleep(1)
        assert change_s(core) <= CHANGE_S
        codes = {future.code() for future in futures}
    assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
