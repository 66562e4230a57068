"""Errors between a shim and the core. There is one class for each reaction that a shim needs.

ShimClientError
├── CoreUnreachable        no core answers: check the address, try later
├── RegistrationRefused    the core refused: the configuration or the RM's identity is wrong
├── ConnectionLost         the streams broke and could not be opened again in the time allowed
├── ResyncRequired         the core no longer knows this RM: register again, report everything again
├── RegistrationHeld       another program is still registered for this RM, and this one chose to wait: try later
├── StreamRefused          the core ended a stream for a reason that remains if it is opened again
├── Superseded             another program registered the same RM: end, and do not register again by yourself
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
    """No core answers at the given address."""

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


class RegistrationHeld(RegistrationRefused):
    """Another program is registered for the RM, and this one chose to wait. *retry_s* is the time in seconds after
    which a further try makes sense."""

    def __init__(self, call: str, code: grpc.StatusCode, reason: str, retry_s: float) -> None:
        super().__init__(call, code, reason)
        self.retry_s = retry_s


class NotSupported(CallFailed):
    """The core serves ``si.v1`` but not this call of ``kornel.v1``."""


class StreamRefused(ShimClientError):
    """The core ended a stream with a status that would only come again if the stream were reopened."""

    def __init__(self, stream: str, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(f"{stream} ended by the core ({code.name}): {reason}")
        self.code = code
        self.reason = reason


class Superseded(StreamRefused):
    """Another program registered the same RM, so the core no longer accepts messages from this one.

    Nothing that this program has sent since then counts. It should end: if it registered again, it would displace the
    other program, which would do the same in turn, without end.
    """


class ResyncRequired(StreamRefused):
    """The core does not know this RM, or no longer does: register again, then report nodes, applications and tasks
    again.
    """
