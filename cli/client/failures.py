"""Describes failed calls in words, with what to do about them."""

from __future__ import annotations

from typing import Final

import grpc

_NOT_CONNECTED: Final = (
    "failed to connect", "connection refused", "dns resolution failed", "no such file", "socket closed",
    "connection reset", "unavailable: recvmsg", "empty address list", "name resolution", "goaway",
)  # fmt: skip
_NO_TLS: Final = ("ssl", "tls", "handshake", "certificate", "wrong version number")


class CoreUnreachable(Exception):
    """The core did not answer, or it refused the call. ``bad_input``: the call's arguments are wrong. ``unknown``: the
    core does not know what the call names."""

    def __init__(self, message: str, *, bad_input: bool = False, unknown: bool = False) -> None:
        super().__init__(message)
        self.bad_input = bad_input
        self.unknown = unknown


def describe_failure(address: str, error: grpc.RpcError) -> CoreUnreachable:
    """Returns the *error* of a call to *address* in words."""
    assert isinstance(error, grpc.Call)
    code, details = error.code(), error.details() or ""
    return CoreUnreachable(
        _say_failure(address, code, details),
        bad_input=code is grpc.StatusCode.INVALID_ARGUMENT,
        unknown=code is grpc.StatusCode.NOT_FOUND,
    )


def _say_failure(address: str, code: grpc.StatusCode, details: str) -> str:
    said = details.lower()
    match code:
        case grpc.StatusCode.UNAVAILABLE if any(words in said for words in _NO_TLS):
            return f"no secure connection to {address}: {details} (--ca FILE names the CA that signed its certificate)"
        case grpc.StatusCode.UNAVAILABLE if any(words in said for words in _NOT_CONNECTED):
            return f"no core answers at {address}; start one with `kornel serve`, or set KORNEL_ADDRESS, or give --core"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"no answer from {address} in time; give it more with --timeout"
        case grpc.StatusCode.UNAUTHENTICATED:
            return f"the core at {address} does not know the caller: {details} (--token-file, or --cert with --key)"
        case grpc.StatusCode.UNIMPLEMENTED:
            return f"the core at {address} does not have this call: it is older than this command, or not a core"
        case grpc.StatusCode.UNKNOWN | grpc.StatusCode.INTERNAL:
            return f"the core at {address} failed: {details or code.name}"
        case _:
            return details or f"{address}: {code.name}"
