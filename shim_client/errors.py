"""Errors between a shim and the core, by what the shim has to do about them.

ShimClientError
├── CoreUnreachable        nobody answers: check the address, try later
├── RegistrationRefused    the core answered no: the configuration or the RM's identity is wrong
├── ConnectionLost         the streams broke and could not be opened again in the time allowed
├── ResyncRequired         the core does not know this RM any more: register again, report everything again
├── StreamRefused          the core ended a stream for a reason that opening it again will not cure
├── NotSupported           the core does not serve this kornel.v1 call
└── CallFailed             any other refusal of a unary call
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc


class ShimClientError(Exception):
    """The base of every error that this package raises on purpose."""


class CoreUnreachable(ShimClientError):
    """No core answers at the address."""

    def __init__(self, address: str, seconds: float) -> None:
        super().__init__(f"no core answers at {address} (waited {seconds:g} s)")
        self.address = address


class ConnectionLost(ShimClientError):
    """A stream broke, and no connection could be made again in the time allowed."""


class CallFailed(ShimClientError):
    """A unary call was refused. *code* and *reason* are the gRPC status."""

    def __init__(self, call: str, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(f"{call} refused ({code.name}): {reason}")
        self.code = code
        self.reason = reason


class RegistrationRefused(CallFailed):
    """The core refused the registration; the RM counts as not registered."""


class NotSupported(CallFailed):
    """The core serves ``si.v1`` but not this call of ``kornel.v1``."""


class StreamRefused(ShimClientError):
    """The core ended a stream with a status that reopening it would only repeat."""

    def __init__(self, stream: str, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(f"{stream} ended by the core ({code.name}): {reason}")
        self.code = code
        self.reason = reason


class ResyncRequired(StreamRefused):
    """The core does not know this RM (any more): register again, then report nodes, applications and tasks
    again.
    """
