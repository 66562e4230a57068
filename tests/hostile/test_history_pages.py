"""Pages of the stored history, many at once over gRPC and HTTP: everybody else goes on."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final

import grpc
import pytest

from kornel.v1 import history_pb2 as pb
from kornel.v1.history_pb2_grpc import HistoryServiceStub
from tests.e2e.harness import CONFIG
from tests.hostile.attacked import AttackedCore, attacked_core
from tests.hostile.test_history import all_arrived, wait_for
from tests.hostile.test_rest_changes import post

RECORDS: Final = 5_000
PAGE: Final = b'{"page": {"pageSize": 1000}}'
TEXTS: Final = b'{"page": {"pageSize": 300}, "withConfig": true}'
SECRET: Final = "          - {name: q, properties: {my.password: x}}\n" * 400


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedCore]:
    """A core whose history has thousands of applications, preemptions, and texts of twenty kilobytes."""
    folder = tmp_path_factory.mktemp("full")
    database = str(folder / "history.db")
    now_ns = time.time_ns()
    with attacked_core(folder, "--history", database, "--history-spool", str(folder / "spool")) as core:
        wait_for(lambda: all_arrived(core), "the history to begin")
        with closing(sqlite3.connect(database, timeout=60)) as filled, filled:
            for table, values in {
                "applications": {"application_id": "app-{}", "queue": "root.a", "user_name": "ann", "state": "Running"},
                "preemptions": {"kind": "guarantee", "victim_key": "key-{}", "victim_application": "app-{}"},
                "configurations": {"origin": "update", "problems": "[]", "config": CONFIG + SECRET},
            }.items():
                columns = [(row[1], row[2]) for row in filled.execute(f"PRAGMA table_info({table})")]
                rows = (
                    [_value(name, kind, values, number, now_ns) for name, kind in columns] for number in range(RECORDS)
                )
                places = ",".join("?" * len(columns))
                filled.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - names of ours
        yield core


def _value(name: str, kind: str, values: dict[str, str], number: int, now_ns: int) -> object:
    if name == "at_ns":
        return now_ns - number
    if name in ("run", "seq"):
        return number + 1
    if name in values:
        return values[name].replace("{}", str(number))
    return "{}" if name == "victim_resources" else "" if kind in ("TEXT", "VARCHAR") else 0


@pytest.mark.parametrize("method", ["ListPastApplications", "ListPreemptions", "ListConfigurations"])
def test_pages_at_once_over_http(full: AttackedCore, method: str) -> None:
    path = f"/ws/v1/calls/HistoryService/{method}"
    page = TEXTS if method == "ListConfigurations" else PAGE
    assert post(full, path, page) == 200
    with full.attack(processor_s=120, memory_mib=96), ThreadPoolExecutor(30) as threads:
        statuses = Counter(threads.map(lambda _: post(full, path, page), range(60)))
    assert set(statuses) <= {200, 503}
    assert statuses[200] >= 10


@pytest.mark.parametrize("method", ["ListPastApplications", "ListPreemptions", "ListConfigurations"])
def test_pages_at_once_over_grpc(full: AttackedCore, method: str) -> None:
    """Three hundred, over ten connections: to accept and refuse so many at once takes a while by itself."""
    request: Any = {
        "ListPastApplications": pb.ListPastApplicationsRequest(),
        "ListPreemptions": pb.ListPreemptionsRequest(),
        "ListConfigurations": pb.ListConfigurationsRequest(with_config=True),
    }[method]
    request.page.page_size = 300 if method == "ListConfigurations" else 1_000
    own = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channels = [grpc.insecure_channel(full.address, options=own) for _ in range(10)]
    with full.attack(processor_s=120, memory_mib=96, health_s=0.3):
        calls = [getattr(HistoryServiceStub(channel), method).future for channel in channels for _ in range(30)]
        codes = Counter(future.code() for future in [call(request, timeout=120) for call in calls])
    for channel in channels:
        channel.close()
    assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert codes[grpc.StatusCode.OK] >= 10
