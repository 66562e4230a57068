"""The calls of ``kornel explain`` and ``kornel what-if``."""

from __future__ import annotations

import grpc
from kornel.v1.explain_pb2 import ExplainRequest, ExplainResponse, WhatIfRequest, WhatIfResponse
from kornel.v1.explain_pb2_grpc import ExplainServiceStub

from core.client.calls import unreachable
from core.client.channels import open_channel
from core.service.limits import MESSAGE_LIMIT

_OPTIONS = [("grpc.max_receive_message_length", MESSAGE_LIMIT)]


def explain(address: str, name: str, partition: str, timeout_s: float) -> ExplainResponse:
    """Why *name* waits, or why it left. Raises ``CoreUnreachable``, for an unknown name too."""
    with open_channel(address, _OPTIONS) as channel:
        try:
            request = ExplainRequest(partition=partition, name=name)
            return ExplainServiceStub(channel).Explain(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise unreachable(address, error) from error


def what_if(address: str, request: WhatIfRequest, timeout_s: float) -> WhatIfResponse:
    """What would come of *request*. Raises ``CoreUnreachable``, for a question that makes no sense too."""
    with open_channel(address, _OPTIONS) as channel:
        try:
            return ExplainServiceStub(channel).WhatIf(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise unreachable(address, error) from error
