"""Asks a core for its health again and again, from a process of its own, and writes how long each answer took.

``python -m tests.hostile.probe GRPC_ADDRESS HTTP_ADDRESS`` writes lines ``began took`` in seconds of the monotonic
clock, which all processes of a machine share, until it is ended. An HTTP address of ``-`` is not asked.
"""

from __future__ import annotations

import http.client
import sys
import time
from contextlib import suppress
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

GIVE_UP_S: Final = 10.0
PAUSE_S: Final = 0.02


def ask_grpc(check: Any) -> None:
    check(health_pb2.HealthCheckRequest(), timeout=GIVE_UP_S)


def ask_http(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=GIVE_UP_S)
    try:
        connection.request("GET", "/healthz/live")
        connection.getresponse().read()
    finally:
        connection.close()


def main() -> None:
    grpc_address, http_address = sys.argv[1:]
    with grpc.insecure_channel(grpc_address) as channel:
        check: Any = HealthStub(channel).Check  # type: ignore[attr-defined]
        while True:
            for asking in (lambda: ask_grpc(check), lambda: ask_http(http_address)):
                began = time.monotonic()
                # An answer that does not come took as long as was waited for it.
                with suppress(grpc.RpcError, OSError, http.client.HTTPException):
                    asking()
                print(began, time.monotonic() - began, flush=True)
                if http_address == "-":
                    break
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
