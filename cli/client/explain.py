"""The calls of ``kornel explain`` and ``kornel what-if``."""

from __future__ import annotations

from kornel.cli.client.calls import open_call
from kornel.v1.explain_pb2 import ExplainRequest, ExplainResponse, WhatIfRequest, WhatIfResponse
from kornel.v1.explain_pb2_grpc import ExplainServiceStub


def explain(address: str, name: str, partition: str, timeout_s: float, node_id: str = "") -> ExplainResponse:
    """Returns why *name* waits or was released; with a node, why it does not run there, or why the node is used as it
    is. Raises ``CoreUnreachable``, also for an unknown name."""
    with open_call(address) as channel:
        request = ExplainRequest(partition=partition, name=name, node_id=node_id)
        return ExplainServiceStub(channel).Explain(request, timeout=timeout_s)


def what_if(address: str, request: WhatIfRequest, timeout_s: float) -> WhatIfResponse:
    """Returns the forecast for *request*. Raises ``CoreUnreachable``, also for a question that makes no sense."""
    with open_call(address) as channel:
        return ExplainServiceStub(channel).WhatIf(request, timeout=timeout_s)
