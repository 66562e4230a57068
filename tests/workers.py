"""Runs the tests in several processes, each a fork of the one that has collected them: ``pytest --workers 4``.

Tests are collected and their modules imported once, which takes ten seconds. A worker is then forked in a moment, and
what is frozen there costs its collector of cycles nothing. Each worker asks for one unit of tests at a time, costliest
first, so that none has much to do when the others are through. A file is a unit, because what its tests share is made
once. Files whose tests are costly and share nothing are dealt out test by test: otherwise the end would wait for the
longest file. Where tests share what is costly to start, only a few workers take them.

Many tests wait for a process, a timer or a disk. How many units are dealt out at a time follows from that: four for
each processor, more while processors have nothing to do, and so many as there may be workers at most.

A worker that dies fails the test it was running, and another is forked for the rest.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.capture import CaptureManager
from _pytest.unraisableexception import collect_unraisable

from tests.patience import PATIENCE_S
from tests.prepared import WORKER

TEST_BY_TEST: Final = ("tests/conformance/", "tests/e2e/", "tests/properties/", "tests/unit/archive/")
FILE_BY_FILE: Final = (
    "tests/e2e/toy_kind/",
    "tests/e2e/local/test_commands",
    "tests/e2e/local/test_jobs",
    "tests/e2e/security/test_client_commands",
    "tests/e2e/test_hostile_input",
)
"""Below the former, but their tests share a server or a folder."""
FOLDERS: Final = ("tests/architecture",)
"""Folders that are dealt out as a whole: their files share what is read and parsed once."""
BROWSING: Final = ("tests/e2e/web/", "tests/e2e/toy_kind/")
"""Folders whose tests share a browser, and mostly a core to look at."""
BROWSERS: Final = 2
"""How many workers take units of these folders."""
COSTS: Final = Path(__file__).with_name("costs.json")
"""Says how many seconds the longest units last (:mod:`tests.costs`)."""
UNITS_PER_PROCESSOR: Final = 4
TICK_S: Final = 1.0
"""After how long the number of units that are dealt out at a time is thought over."""
IDLE: Final = 0.05
"""What part of the processors' time is idle when two units more are dealt out."""
BUSY: Final = 0.005
"""What part of it is idle when it is one less."""


def name_unit(node: str) -> str:
    """Returns the folder, the file or the test that is dealt out as a whole."""
    if node.startswith(FOLDERS):
        return node.partition("::")[0].rpartition("/")[0]
    if node.startswith(TEST_BY_TEST) and not node.startswith(FILE_BY_FILE):
        return node
    return node.partition("::")[0]


def group_tests(nodes: list[str], costs: dict[str, float]) -> list[list[int]]:
    """Returns the tests of each unit by their positions in *nodes*, the costliest units first."""
    units: dict[str, list[int]] = {}
    for at, node in enumerate(nodes):
        units.setdefault(name_unit(node), []).append(at)
    return [units[name] for name in sorted(units, key=lambda name: -costs.get(name, 0.0))]


class Occupancy:
    """Tells how many units are to run at a time, between *least* and *most*, by how idle the processors are."""

    def __init__(self, least: int, most: int) -> None:
        self.units = self._least = min(least, most)
        self.most = most
        self._seen = read_processor_times()
        self._due_s = time.monotonic() + TICK_S

    def follow_processors(self) -> None:
        """Deals out more units or one less for what the processors did since the last time, once in a while."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + TICK_S
        before, self._seen = self._seen, read_processor_times()
        self.units = self.adapt(self.units, self._seen[0] - before[0], self._seen[1] - before[1])

    def adapt(self, units: int, idle: int, whole: int) -> int:
        """Returns how many units follow *units* after the processors have been idle for *idle* of *whole* ticks."""
        if idle > IDLE * whole:
            return min(units + 2, self.most)
        return max(units - 1, self._least) if idle < BUSY * whole else units


def read_processor_times() -> tuple[int, int]:
    """Returns for how many ticks the processors have been idle, and for how many in all; zeros where nobody tells."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return 0, 0
    # user, nice, system, idle and waiting for disks, which come first; guests are counted twice.
    times = [int(word) for word in line.split()[1:9]]
    return times[3] + times[4], sum(times)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers", type=int, default=0, help="run the tests in at most so many processes (0: in this one)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs the tests in workers where ``--workers`` says so."""
    count: int = session.config.getoption("--workers")
    if (
        not count
        or session.config.option.collectonly
        or (session.testsfailed and not session.config.option.continue_on_collection_errors)
    ):
        return None
    costs = json.loads(COSTS.read_text(encoding="utf-8"))
    units = group_tests([item.nodeid for item in session.items], costs)
    _make_folder(session)
    gc.collect()
    gc.freeze()
    occupancy = Occupancy(UNITS_PER_PROCESSOR * (os.cpu_count() or 1), min(count, len(units)))
    workers: list[_Worker] = []
    with _all_ended(workers):
        _Dealer(session, units, workers, occupancy).deal_out()
    return True


def _make_folder(session: pytest.Session) -> None:
    """Makes the folder for temporary files, which all workers share."""
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    factory.getbasetemp()


class _Dealer:
    """Deals out units to workers, and passes on what they report."""

    def __init__(
        self, session: pytest.Session, units: list[list[int]], workers: list[_Worker], occupancy: Occupancy
    ) -> None:
        self._session = session
        self._hook = session.config.hook
        self._waiting = deque(units)
        self._workers = workers
        self._occupancy = occupancy
        self._browsing: set[int] = set()
        """The numbers of the workers that have taken units of :data:`BROWSING`, and take all others."""
        reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False

    def deal_out(self) -> None:
        """Runs all units. Raises what ends a run early."""
        self._give_units()
        while busy := {worker.connection: worker for worker in self._workers if worker.unit}:
            for connection in wait(list(busy), TICK_S):
                worker = busy[connection]  # type: ignore[index]
                try:
                    kind, content = worker.connection.recv()
                except (EOFError, ConnectionError):
                    self._replace(worker)
                else:
                    self._take(worker, kind, content)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
            self._occupancy.follow_processors()
            self._give_units()

    def _give_units(self) -> None:
        """Gives units to workers without one, and forks more workers, until as many run as are to."""
        running = sum(bool(worker.unit) for worker in self._workers)
        for worker in self._workers:
            if running < self._occupancy.units and not worker.unit:
                running += self._give_unit(worker)
        while running < self._occupancy.units and len(self._workers) < self._occupancy.most and self._waiting:
            worker = _Worker(self._session, len(self._workers), self._workers)
            self._workers.append(worker)
            if not self._give_unit(worker):
                break
            running += 1

    def _give_unit(self, worker: _Worker) -> bool:
        """Gives *worker* the first unit that it may take; tells whether there is one."""
        for at, unit in enumerate(self._waiting):
            if self._session.items[unit[0]].nodeid.startswith(BROWSING):
                if worker.number not in self._browsing and len(self._browsing) == BROWSERS:
                    continue
                self._browsing.add(worker.number)
            del self._waiting[at]
            worker.unit = unit
            worker.connection.send(unit)
            return True
        return False

    def _take(self, worker: _Worker, kind: str, content: Any) -> None:
        config = self._session.config
        if kind == "report":
            self._hook.pytest_runtest_logreport(
                report=self._hook.pytest_report_from_serializable(config=config, data=content)
            )
        elif kind == "ended":
            item = self._session.items[content]
            worker.unit = worker.unit[1:]
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        else:
            raise AssertionError(content)

    def _replace(self, worker: _Worker) -> None:
        """Fails the test that a worker has died of, and has another go on behind it."""
        item = self._session.items[worker.unit[0]]
        status = worker.await_end(PATIENCE_S)
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"{item.nodeid}: its worker died ({status})",
            when="call",
        )
        self._hook.pytest_runtest_logreport(report=report)
        self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        self._workers.remove(worker)
        self._waiting.appendleft(worker.unit[1:])
        if not self._waiting[0]:
            self._waiting.popleft()
        another = _Worker(self._session, worker.number, self._workers)
        self._workers.append(another)
        self._give_unit(another)


class _Worker:
    """A forked process that runs the units it is given."""

    def __init__(self, session: pytest.Session, number: int, others: list[_Worker]) -> None:
        self.number = number
        self.unit: list[int] = []
        """What it has been given and has not ended, the first of it first."""
        ours, its = socket.socketpair()
        self.pid = os.fork()
        if self.pid:
            its.close()
            self.connection = Connection(ours.detach())
            return
        status = 1
        try:
            ours.close()
            for other in others:
                other.connection.close()
            _serve(session, number, Connection(its.detach()))
            status = 0
        except BaseException:  # noqa: BLE001 - it must not go on as its parent would
            traceback.print_exc()
        finally:
            os._exit(status)

    def await_end(self, patience_s: float) -> str:
        """Returns how the process has ended; one that does not end in time is killed."""
        until = time.monotonic() + patience_s
        self.connection.close()
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return signal.Signals(-code).name if code < 0 else f"status {code}"
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)


@contextmanager
def _all_ended(workers: list[_Worker]) -> Iterator[None]:
    """Ends *workers* in the end, in the middle of their tests if something is raised."""
    try:
        yield
    except BaseException:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
        raise
    finally:
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.await_end(PATIENCE_S)


def _serve(session: pytest.Session, number: int, connection: Connection) -> None:
    """Runs units in a worker until the connection ends, and removes then what its tests have shared."""
    os.environ[WORKER] = str(number)
    random.seed()
    config = session.config
    manager = config.pluginmanager
    capture: CaptureManager = manager.getplugin("capturemanager")
    # Its files, and so the position in them, are those of all forks.
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    reporter: Any = manager.unregister(name="terminalreporter")
    manager.register(_Telling(session, connection, reporter), "terminalreporter")
    try:
        while True:
            unit: list[int] = connection.recv()
            for at, following in zip(unit, [*unit[1:], None], strict=True):
                item = session.items[at]
                # What the session shares stays behind the last test of a unit, and nothing else does.
                then: Any = session if following is None else session.items[following]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=then)
                connection.send(("ended", at))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass
    finally:
        session._setupstate.teardown_exact(None)


class _Telling:
    """Reports from a worker to the process that has forked it, and has each unit answer for what it leaves behind."""

    def __init__(self, session: pytest.Session, connection: Connection, reporter: Any) -> None:
        self._session = session
        self._config = session.config
        self._connection = connection
        # To where pytest-timeout writes what all threads do when a test has taken too long.
        self._tw = getattr(reporter, "_tw", None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Has a transport that a unit has left open, and the like, fail the last test of this unit.

        Otherwise it would fail the test that runs when the collector of cycles meets it, in another unit. What stays is
        frozen: the next unit answers for its own objects only, and these are few.
        """
        yield
        if nextitem is self._session:
            vars(item)["funcargs"] = {}
            gc.collect()
            gc.freeze()
            collect_unraisable(item.config)
