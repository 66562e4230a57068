"""Records that no database takes, names that no spool gives and clocks that are wrong: the history goes on."""

from __future__ import annotations

import random
import sqlite3
import string
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest

from kornel.core.archive.records import encode_batch
from kornel.core.archive.set_aside import DIRECTORY, RECORDS
from kornel.core.archive.spool import SpoolWriter
from kornel.si.v1 import si_pb2 as si
from kornel.v1 import history_pb2 as pb
from kornel.v1.history_pb2_grpc import HistoryServiceStub
from tests.hostile.attacked import AttackedCore, attacked_core
from tests.patience import PATIENCE_S
from tests.unit.archive.archives import event
from tests.unit.archive.test_spool import ODD_NAMES

PER_RECORD_S = 0.0005
"""Processor time of the core for each record that somebody else has to refuse; the committing process has its own."""


@contextmanager
def keeping(folder: Path, database: str) -> Iterator[AttackedCore]:
    with attacked_core(folder, "--history", database, "--history-spool", str(folder / "spool")) as core:
        yield core


def status_of(core: AttackedCore) -> pb.GetHistoryStatusResponse:
    with grpc.insecure_channel(core.address) as channel:
        found: pb.GetHistoryStatusResponse = HistoryServiceStub(channel).GetHistoryStatus(
            pb.GetHistoryStatusRequest(), timeout=PATIENCE_S
        )
        return found


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited 60 s for {what}"
        time.sleep(0.02)


def all_arrived(core: AttackedCore) -> bool:
    found = status_of(core)
    return not (found.queued or found.spool_bytes)


def submit(core: AttackedCore, name: str) -> None:
    """Have the bystander bring an application of that name, and wait until it is taken or refused."""
    assert core.bystander is not None
    user = si.UserGroupInformation(user="u")
    new = si.AddApplicationRequest(applicationID=name, queueName="root.a", partitionName="default", ugi=user)
    answer = core.bystander._applications.ask(si.ApplicationRequest(rmID="rm-1", new=[new]))
    # A core may refuse such names before anything keeps them.
    while not (answer.accepted or answer.rejected):
        answer = core.bystander._applications.ask(si.ApplicationRequest(rmID="rm-1"))


def test_names_that_no_index_takes(database: str, tmp_path: Path) -> None:
    """Applications and keys of thousands of letters that nobody can compress, zeros and odd characters in them."""
    dice = random.Random(13)
    letters = string.ascii_letters + string.digits
    names = ["".join(dice.choices(letters, k=length)) for length in (250, 300, 2_700, 6_000, 8_200, 60_000)]
    names += ["zero\x00zero", "\U0001f600" * 2_000, "\u202e\x1b[2J", "'; DROP TABLE events; --"]
    with keeping(tmp_path, database) as core:
        with core.attack(refused_bytes=sum(map(len, names)) * 4):
            for name in names:
                submit(core, name)
            wait_for(lambda: all_arrived(core), "the history to catch up")
        found = status_of(core)
        assert found.committed > 0
        assert (found.refused, found.problem) == (0, "")


def test_records_that_a_database_refuses(database: str, tmp_path: Path) -> None:
    """Left by an earlier run, a bad one among every hundred: they are set aside, and the rest arrives."""
    spool = SpoolWriter(tmp_path / "spool", 2**30)
    now_ns = time.time_ns()
    absurd = [2**63, 2**64 - 1, 2**63 + 1]
    for frame in range(20):
        told: list[Any] = [event(n, at_ns=absurd[n % 3] if n % 100 == 7 else now_ns + n) for n in range(1_000)]
        spool.append(77, 1 + 1_000 * frame, *encode_batch([(now_ns, told)], 1))
    for number, payload in enumerate((b"no JSON", b"{}", b"[" * 5_000, orjson.dumps([[99, [[1]]]]), b"\xff" * 1_000)):
        spool.append(78, number, 1, payload)
    spool.close()
    with keeping(tmp_path, database) as core:
        with core.attack(processor_s=1.0 + 20_000 * PER_RECORD_S):
            wait_for(lambda: all_arrived(core) and status_of(core).set_aside >= 205, "the spool to be taken up")
        found = status_of(core)
        assert found.refused == found.set_aside == 205
        assert DIRECTORY in found.problem
        file = tmp_path / "spool" / DIRECTORY / RECORDS
        lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        assert sum(line["records"] for line in lines) == 205
        with grpc.insecure_channel(core.address) as channel:
            page = HistoryServiceStub(channel).ListEvents(
                pb.ListEventsRequest(object_id="ask-999", page=pb.HistoryPage(page_size=100)), timeout=PATIENCE_S
            )
        assert len(page.events) == 20
        file.unlink()
        wait_for(lambda: not status_of(core).problem, "the problem to be over")


def test_spool_with_absurd_names(tmp_path: Path) -> None:
    """They are set aside and told, and the one file is whole after the core has stopped."""
    spool = tmp_path / "spool"
    spool.mkdir()
    for name in ODD_NAMES:
        (spool / name).write_bytes(b"KSP1" + b"\xff" * 100)
    (spool / "0000000000000009.spool").mkdir()
    with keeping(tmp_path, str(tmp_path / "history.db")) as core:
        with core.attack():
            core.serves_bystander()
            wait_for(lambda: all_arrived(core) and status_of(core).committed > 0, "the history to be written")
        found = status_of(core)
        assert found.set_aside == len(ODD_NAMES) + 1
        assert not any(spool.glob("*" + ODD_NAMES[0]))
    assert not (tmp_path / "history.db-wal").exists()
    with closing(sqlite3.connect(tmp_path / "history.db")) as copied:
        assert copied.execute("SELECT count(*) FROM events").fetchone()[0] > 0


@pytest.mark.parametrize("ahead_s", [10.0, 400 * 86_400.0])
def test_records_of_a_clock_that_was_ahead_prune_nothing(tmp_path: Path, ahead_s: float) -> None:
    """What a run wrote while its clock was ahead takes nothing away from those that were there."""
    now_ns = time.time_ns()
    spool = SpoolWriter(tmp_path / "spool", 2**30)
    old = [event(n, at_ns=now_ns - 8 * 86_400 * 10**9 + n) for n in range(100)]
    ahead = [event(n, at_ns=now_ns + int(ahead_s * 1e9) + n) for n in range(100)]
    spool.append(77, 1, *encode_batch([(now_ns, old)], 1))
    spool.append(78, 1, *encode_batch([(now_ns, ahead)], 1))
    spool.close()
    with keeping(tmp_path, str(tmp_path / "history.db")) as core:
        with core.attack():
            wait_for(lambda: all_arrived(core) and status_of(core).committed >= 200, "the spool to be taken up")
        found = status_of(core)
        assert (found.refused, found.problem) == (0, "")
    with closing(sqlite3.connect(tmp_path / "history.db")) as left:
        runs = dict(left.execute("SELECT run, count(*) FROM events WHERE run IN (77, 78) GROUP BY run").fetchall())
    assert runs == {77: 100, 78: 100}, "nothing goes for its age before the clocks have gone evenly for a while"
