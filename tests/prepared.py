"""Starts our programs from a process that has imported them already: real processes, real sockets, real signals.

Python needs a second of processor time and more to import what a core, a shim or a command takes, and tests start
hundreds of them. Here one process per worker imports everything once, waits without any thread, and forks for each
program: :func:`python` is what a test writes for ``sys.executable`` in front of ``-m kornel``. The program has the
directory, environment, files and arguments of the command, and a session of its own; signals reach it, and it is killed
when the command is. Its process ID is not that of the command: :func:`find_program` returns it, for SIGSTOP, which
would stop the command alone, and for whoever looks at the process. SIGKILL ends the command before the program:
:func:`kill_program` waits for both. Tests that are about starting write ``sys.executable``.

Ctrl-C ends a program, however the tests were started: SIGINT is ignored where a shell has them run in the background.
"""

from __future__ import annotations

import atexit
import gc
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kornel.core.service.machine import helpers
from tests.waiting import wait_until

ROOT: Final = Path(__file__).parents[1]
LAUNCHER: Final = ROOT / "tests" / "launch.py"
PATHS: Final = str(ROOT)
PROGRAMS: Final = (
    "kornel",
    "kornel.core.service.machine.helpers",
    "kornel.shim_mock",
    "kornel.shim_client.example",
    "kornel.shim_local",
    "kornel.conformance",
    "tests.conformance.broken_shims",
    "tests.conformance.gang_shim",
    "tests.conformance.rule_shim",
    "tests.e2e.altered_core",
    "tests.e2e.local.kit_shim",
    "tests.e2e.rolling_shim",
    "tests.unit.journal.killed_writers",
)
"""The modules that are run with ``-m`` here."""

IMPORTED: Final = (
    "kornel.cli.app",
    "kornel.core.commands.serving",
    *(program for program in PROGRAMS if "." in program),
    "kornel.core.archive.committer",
    "kornel.core.journal.snapshot_process",
    "kornel.core.service.configuration.reading_process",
    "kornel.shim_local.cli",
    "kornel.shim_local.program",
    "kornel.shim_mock.cli",
    "kornel.conformance.cli",
    "alembic.command",
    "alembic.config",
    "alembic.runtime.environment",
    "grpc._channel",
    "typer._click.decorators",
    "google.protobuf.json_format",
    "pydantic",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "typer._adapters",
    "uvloop",
)
"""The modules that are imported beforehand: what programs import when they start."""

WORKER: Final = "PYTEST_WORKER"
"""The environment variable that tells a test in which worker it runs."""
READY: Final = b"ready\n"
OTHER: Final = -1000
"""The answer to a command that is none of :data:`PROGRAMS`."""


COMMAND: Final = """\
#!{python} -IS
import sys
sys.path.append({tests!r})
import launch
launch.main({socket!r}, sys.argv[1:])
"""


_keepers: Final[list[subprocess.Popen[bytes]]] = []


@cache
def python() -> str:
    """Returns a command that runs :data:`PROGRAMS` behind ``-m`` in forks, and anything else as Python does.

    The process that forks is started by the first call, and ends with the run of the tests, whatever ends that.
    """
    keeper, command = begin()
    # Whoever starts a program has patience for a program, and not for all that is imported here.
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == READY
    return command


@cache
def begin() -> tuple[subprocess.Popen[bytes], str]:
    """Starts the process that forks, before somebody needs it, and returns it and the command."""
    folder = Path(tempfile.mkdtemp(prefix="prepared-"))
    path = folder / "socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(64)
    command = folder / "python"
    command.write_text(
        COMMAND.format(python=sys.executable, tests=str(LAUNCHER.parent), socket=str(path)), encoding="utf-8"
    )
    command.chmod(0o700)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = PATHS
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.prepared", str(listener.fileno()), str(command)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    listener.close()
    _keepers.append(keeper)
    return keeper, str(command)


class _Helpers:
    """Stands for the module :mod:`sys` where a core within the tests' own process starts processes beside itself."""

    path = property(lambda _: sys.path)
    executable = property(lambda _: python())


def prepare_helpers() -> None:
    """Has cores within this process start the processes beside them from the one that has imported everything."""
    helpers.sys = _Helpers()  # type: ignore[attr-defined, assignment]


def pytest_unconfigure() -> None:
    """Ends the process that was prepared, and waits for it, so that its costs are a part of the run's."""
    for keeper in _keepers:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()


def list_keepers() -> set[int]:
    """Returns the IDs of the processes of this one that fork."""
    return {keeper.pid for keeper in _keepers}


def name_costs(folder: Path, worker: str) -> Path:
    """Returns the file that says what each process has cost, in seconds, that a test of *worker* has started."""
    return folder / f"costs-{worker}"


def sum_costs() -> float:
    """Returns the processor time of the prepared processes that tests of this worker have started, and that ended."""
    if not _keepers:
        return 0.0
    path = name_costs(Path(begin()[1]).parent, os.environ.get(WORKER, ""))
    return sum(map(float, path.read_text(encoding="ascii").split())) if path.exists() else 0.0


def find_program(command: int) -> int:
    """Returns the process ID of the program that *command*, the process of a prepared command, stands for."""
    path = _name_program(Path(python()).parent, command)
    wait_until(path.exists, f"command {command} to stand for a prepared program")
    return int(path.read_text(encoding="ascii"))


def kill_program(command: subprocess.Popen[Any]) -> None:
    """Kills what *command* runs, and returns when it has ended, so that nobody holds its sockets and files any more."""
    path = _name_program(Path(python()).parent, command.pid)
    if command.poll() is None and path.exists():
        with suppress(FileNotFoundError, ProcessLookupError):  # It has ended by itself.
            os.kill(int(path.read_text(encoding="ascii")), signal.SIGKILL)
    else:
        command.kill()
    command.wait()


def _name_program(folder: Path, command: int) -> Path:
    return folder / f"program-{command}"


class Keeper:
    """Forks a process for each command that connects, and tells the command how its process ended."""

    def __init__(self, listener: socket.socket, folder: Path) -> None:
        self._listener = listener
        self._folder = folder
        self._poll = select.poll()
        self._processes: dict[int, tuple[int, socket.socket]] = {}
        """By the file descriptors of a process and of its connection: its ID, and the connection."""
        self._workers: dict[int, str] = {}
        """Which worker's test has started a process, by its ID."""
        self._notes: dict[int, Path] = {}
        """The file that names a process, by its ID."""

    def serve(self) -> tuple[list[str], dict[str, str]] | None:
        """Returns in each forked process the arguments and environment to go on with; ``None``: the tests are over."""
        self._poll.register(0, select.POLLIN)
        self._poll.register(self._listener, select.POLLIN)
        while True:
            for file, _ in self._poll.poll():
                if file == 0:
                    for pid, _ in self._processes.values():
                        _kill_session(pid)
                    return None
                if file == self._listener.fileno():
                    found = self._take(self._listener.accept()[0])
                    if found is not None:
                        return found
                elif file in self._processes:
                    self._follow(file)

    def _take(self, connection: socket.socket) -> tuple[list[str], dict[str, str]] | None:
        head, files, _, _ = socket.recv_fds(connection, 4, 3)
        if len(head) < 4:
            connection.close()
            return None
        (length,) = struct.unpack("!I", head)
        request = connection.recv(length, socket.MSG_WAITALL)
        words, _, variables = request.partition(b"\0\0")
        folder, *arguments = map(os.fsdecode, words.split(b"\0"))
        pairs = (os.fsdecode(each).partition("=") for each in variables.split(b"\0") if each)
        environment = {name: value for name, _, value in pairs}
        rest = [word for word in arguments if word != "-P"] if arguments[:1] == ["-P"] else arguments
        if rest[:1] != ["-m"] or rest[1] not in PROGRAMS or environment.get("PYTHONPATH") not in (None, PATHS):
            connection.sendall(struct.pack("!i", OTHER))
            connection.close()
            for file in files:
                os.close(file)
            return None
        pid = os.fork()
        if pid == 0:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.nice = _keep_priority
            for to, file in enumerate(files):
                os.dup2(file, to)
            os.closerange(3, 65_536)
            self._listener.detach()
            connection.detach()
            for _, other in self._processes.values():
                other.detach()
            os.chdir(folder)
            return rest[1:], environment
        for file in files:
            os.close(file)
        self._notes[pid] = self._note_program(connection, pid)
        self._workers[pid] = environment.get(WORKER, "")
        ended = os.pidfd_open(pid)
        for file in (ended, connection.fileno()):
            self._processes[file] = (pid, connection)
            self._poll.register(file, select.POLLIN)
        return None

    def _note_program(self, connection: socket.socket, pid: int) -> Path:
        """Writes down that the command at the other end of *connection* stands for process *pid*. Returns the file."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        path = _name_program(self._folder, struct.unpack("3i", credentials)[0])
        path.with_suffix(".new").write_text(str(pid), encoding="ascii")
        return path.with_suffix(".new").replace(path)

    def _follow(self, file: int) -> None:
        """Passes on a signal, kills the process whose command has gone, or says how it has ended."""
        pid, connection = self._processes[file]
        if file == connection.fileno():
            numbers = connection.recv(16)
            for number in numbers:
                os.kill(pid, number)
            if not numbers:
                _kill_session(pid)
                self._poll.unregister(file)
                del self._processes[file]
            return
        _, status, usage = os.wait4(pid, 0)
        with name_costs(self._folder, self._workers.pop(pid)).open("a", encoding="ascii") as costs:
            costs.write(f"{usage.ru_utime + usage.ru_stime}\n")
        # Another command may get the process ID of this one.
        self._notes.pop(pid).unlink(missing_ok=True)
        with suppress(OSError):  # Its command was killed.
            connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
        self._poll.unregister(file)
        del self._processes[file]
        if self._processes.pop(connection.fileno(), None) is not None:
            self._poll.unregister(connection.fileno())
        connection.close()
        os.close(file)


def _keep_priority(_increment: int) -> int:
    """Stands for ``os.nice``: what has a low priority may get no processor at all beside other programs."""
    return 0


def _kill_session(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _become_program(arguments: list[str], environment: dict[str, str]) -> None:
    """Runs the module that *arguments* begin with, as ``python -m`` would."""
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - they are open, and stay so
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1 if os.isatty(1) else -1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
    module, *rest = arguments
    sys.argv = [module, *rest]
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)  # It becomes __main__, as if nobody had imported it.
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = _show_status(ended.code)
    except BaseException as error:  # noqa: BLE001 - Python shows whatever ends a program
        sys.excepthook(type(error), error, error.__traceback__)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    _end_process(status)


def _show_status(code: object) -> int:
    """Returns the status with which ``sys.exit(code)`` ends a program, and writes what is no number."""
    if code is None or isinstance(code, int):
        return int(code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _end_process(status: int) -> None:
    """Ends this process as Python does, with *status* or by a signal, but takes nothing apart of what was imported.

    That would copy every page of it, which takes longer than many a program.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def main() -> None:
    """Imports everything, and then forks on demand until standard input ends."""
    for module in IMPORTED:
        import_module(module)
    for source in sys.modules["kornel.cli.app"].COMMANDS.values():
        source.load()
    gc.collect()
    gc.freeze()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    descriptor, sys.executable = sys.argv[1:]
    found = Keeper(socket.socket(fileno=int(descriptor)), Path(sys.executable).parent).serve()
    if found is not None:
        _become_program(*found)
    else:
        shutil.rmtree(Path(sys.executable).parent)


if __name__ == "__main__":
    main()
