"""Calls in JSON and configurations over HTTP: bodies that are too long, too slow, or of too many values."""

from __future__ import annotations

import http.client
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Final

import pytest

from tests.hostile.attacked import AttackedCore
from tests.hostile.test_http_requests import connected

JSON: Final = "application/json"
YAML: Final = "application/x-yaml"
DRAIN: Final = "/ws/v1/calls/AdminService/DrainNode"
WHAT_IF: Final = "/ws/v1/calls/ExplainService/WhatIf"
VALIDATE: Final = "/ws/v1/calls/ConfigurationService/ValidateConfiguration"
CONFIGURATION: Final = "/ws/v1/configuration"
MIB: Final = 2**20

FIELDS: Final = b"{" + b",".join(b'"a%d":1' % number for number in range(350_000)) + b"}"
NUMBERS: Final = b'{"config":[' + b"1," * 2_000_000 + b"1]}"
TEXTS: Final = b'{"config":[' + b'"",' * 1_300_000 + b'""]}'
DEEP: Final = b'{"config":' * 400_000
NO_TEXT_ENDS: Final = b'{"config":"' + b'\\"' * 2_000_000
AMOUNTS: Final = b'{"ask":{"resources":{' + b",".join(b'"a%d":1' % number for number in range(6_000)) + b"}}}"
GROUPS: Final = b'{"ask":{"groups":[' + b'"",' * 21_000 + b'""]}}'


def post(core: AttackedCore, path: str, body: bytes, content_type: str = JSON) -> int:
    """The status of the answer to *body*; 0: the connection ended without one."""
    connection = http.client.HTTPConnection(core.http, timeout=120)
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request("POST", path, body, {"Content-Type": content_type})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (VALIDATE, FIELDS),
        (VALIDATE, NUMBERS),
        (VALIDATE, TEXTS),
        (VALIDATE, DEEP),
        (VALIDATE, NO_TEXT_ENDS),
        (DRAIN, FIELDS),
        (WHAT_IF, AMOUNTS),
        (WHAT_IF, GROUPS),
    ],
    ids=["fields", "numbers", "texts", "depth", "a text without end", "fields of a drain", "amounts", "groups"],
)
def test_bodies_of_very_many_values(core: AttackedCore, path: str, body: bytes) -> None:
    """Twenty at once, none of which is read value by value."""
    with core.attack(refused_bytes=20 * len(body), health_s=0.6), ThreadPoolExecutor(20) as threads:
        statuses = Counter(threads.map(lambda _: post(core, path, body), range(20)))
    assert set(statuses) <= {400, 413, 503}


def test_bodies_that_are_not_finished(core: AttackedCore) -> None:
    """A hundred of four megabytes take no more memory than the texts that may wait."""
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with core.attack(refused_bytes=100 * 4 * MIB), ExitStack() as open_:
        for number in range(100):
            connection = open_.enter_context(connected(core))
            path = (CONFIGURATION, VALIDATE, DRAIN)[number % 3]
            with suppress(OSError):
                connection.sendall(head % (path.encode(), 4 * MIB) + b" " * (4 * MIB - 1))


def test_slow_requests_keep_nobody_from_a_long_answer(core: AttackedCore) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with core.attack(), ExitStack() as open_:
        for _ in range(8):
            open_.enter_context(connected(core)).sendall(head % WHAT_IF.encode())
        began = time.monotonic()
        connection = http.client.HTTPConnection(core.http, timeout=60)
        connection.request("GET", "/ws/v1/partition/default/nodes")
        assert connection.getresponse().status == 200
        assert time.monotonic() - began < 5
        connection.close()


def test_refused_configurations_leave_nothing(core: AttackedCore) -> None:
    """Twenty at once that break off, of which some are turned away. One takes twenty megabytes while it is read."""
    queues = ",".join(f"{{name: q{number}}}" for number in range(50_000))
    text = f"partitions: [{{name: default, queues: [{{name: root, queues: [{queues}".encode()
    # A text that is to come into force is read in a thread beside the event loop, and both want the interpreter.
    with core.attack(processor_s=60), ThreadPoolExecutor(20) as threads:
        statuses = Counter(threads.map(lambda _: post(core, CONFIGURATION, text, YAML), range(20)))
    assert set(statuses) <= {400, 503}
    assert statuses[400] >= 8
