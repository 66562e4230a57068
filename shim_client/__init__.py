"""A client library for authors of shims. It contains everything that every resource manager needs to speak ``si.v1``.

A shim owns nodes, applications and containers. It reports them, and carries out the decisions of the core. This package
handles the connection: it registers, keeps the three streams open with batching, back-pressure and reconnection, and
returns the decisions as typed values. It depends on the wire contract only, never on the code of the core.

    async with ShimClient("127.0.0.1:50051", "rm-1") as client:
        await client.register(config=queues_yaml)
        await client.create_nodes([node])
        await client.add_applications([application])
        await client.submit_asks([Ask("task-0", "app-1", {"vcore": 1000})])
        async for update in client.updates():
            match update:
                case Allocated(key=key, node_id=node_id): ...
                case Released(key=key, termination=termination): ...
"""

from kornel.shim_client.asks import (
    Ask,
    Device,
    Devices,
    Generation,
    Topology,
    devices_attribute,
    devices_of,
    resource,
)
from kornel.shim_client.callbacks import (
    CallbackAttachment,
    CallbackHandler,
    Judgement,
    NoticeReply,
    PredicatesQuestion,
    PreemptionNotice,
    PreemptionQuestion,
    PreemptionWithdrawal,
    SchedulingState,
)
from kornel.shim_client.client import ShimClient
from kornel.shim_client.credentials import Credentials, CredentialsUnusable
from kornel.shim_client.errors import (
    CallFailed,
    ConnectionLost,
    CoreUnreachable,
    NotSupported,
    RegistrationHeld,
    RegistrationRefused,
    ResyncRequired,
    ShimClientError,
    StreamRefused,
    Superseded,
)
from kornel.shim_client.updates import (
    Allocated,
    ApplicationAccepted,
    ApplicationRejected,
    ApplicationUpdated,
    AskRejected,
    AskReleased,
    NodeAccepted,
    NodeRejected,
    Released,
    StreamKind,
    StreamReopened,
    Update,
    UpdateHandler,
)

__all__ = [
    "Allocated",
    "ApplicationAccepted",
    "ApplicationRejected",
    "ApplicationUpdated",
    "Ask",
    "AskRejected",
    "AskReleased",
    "CallFailed",
    "CallbackAttachment",
    "CallbackHandler",
    "ConnectionLost",
    "CoreUnreachable",
    "Credentials",
    "CredentialsUnusable",
    "Device",
    "Devices",
    "Generation",
    "Judgement",
    "NodeAccepted",
    "NodeRejected",
    "NotSupported",
    "NoticeReply",
    "PredicatesQuestion",
    "PreemptionNotice",
    "PreemptionQuestion",
    "PreemptionWithdrawal",
    "RegistrationHeld",
    "RegistrationRefused",
    "Released",
    "ResyncRequired",
    "SchedulingState",
    "ShimClient",
    "ShimClientError",
    "StreamKind",
    "StreamRefused",
    "StreamReopened",
    "Superseded",
    "Topology",
    "Update",
    "UpdateHandler",
    "devices_attribute",
    "devices_of",
    "resource",
]
