"""Defines the sizes that both ends of a connection keep to."""

from __future__ import annotations

from typing import Final

MESSAGE_LIMIT: Final = 64 * 1024 * 1024
"""The most bytes of one message."""

CONFIGURATION_LIMIT: Final = 3 * 1024 * 1024
"""The most bytes of a request that contains a configuration."""

NAME_LIMIT: Final = 4 * 1024
"""The most bytes of a request that names a service, which any caller may send."""

QUESTION_LIMIT: Final = 64 * 1024
"""The most bytes of any other request: a question, a command."""

_OF_METHOD: Final = {
    "/grpc.health.v1.Health/Check": NAME_LIMIT,
    "/grpc.health.v1.Health/List": NAME_LIMIT,
    "/grpc.health.v1.Health/Watch": NAME_LIMIT,
    "/si.v1.Scheduler/RegisterResourceManager": CONFIGURATION_LIMIT,
    "/si.v1.Scheduler/UpdateAllocation": MESSAGE_LIMIT,
    "/si.v1.Scheduler/UpdateApplication": MESSAGE_LIMIT,
    "/si.v1.Scheduler/UpdateNode": MESSAGE_LIMIT,
    "/kornel.v1.CallbackService/Attach": MESSAGE_LIMIT,
    "/kornel.v1.ConfigurationService/UpdateConfiguration": CONFIGURATION_LIMIT,
    "/kornel.v1.ConfigurationService/ValidateConfiguration": CONFIGURATION_LIMIT,
    "/kornel.v1.ConfigurationService/PreviewConfiguration": CONFIGURATION_LIMIT,
}


def request_limit(method: str) -> int:
    """Returns the most bytes that a request of *method* may have."""
    return _OF_METHOD.get(method, QUESTION_LIMIT)
