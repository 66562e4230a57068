"""Answers questions in a copy of this process, so that nobody waits for the answer but who asked.

The system copies the process at once, and its memory page by page, as the core or the copy writes to it. So an answer
is about the moment of the copy, and may change whatever it likes on the way.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final, Generic, NoReturn, TypeVar

from kornel.core.service.machine.helpers import HelperEnded, describe_end, lower_priority

LONGEST_S: Final = 60
"""The seconds after which a copy is ended, whatever holds it up, and the next question has its turn."""

_NICENESS: Final = 5

AnswerT = TypeVar("AnswerT")


class ProcessCopy(Generic[AnswerT]):
    """A copy of this process that works out an answer, and ends."""

    def __init__(self, answer: Callable[[], AnswerT]) -> None:
        """Calls *answer* in a copy of this process, where only this thread goes on, so it must not log or use a
        network.

        Raises :class:`OSError` if there can be no copy, and :class:`RuntimeError` if gRPC is in use and
        ``GRPC_ENABLE_FORK_SUPPORT`` is not ``false``, as it has to be when gRPC is imported: it would start threads in
        the copy, which abort it.
        """
        if "grpc" in sys.modules and os.environ.get("GRPC_ENABLE_FORK_SUPPORT") != "false":
            raise RuntimeError("GRPC_ENABLE_FORK_SUPPORT=false must be in the environment before gRPC is imported")
        self._guard = threading.Lock()
        """Held while the copy is killed or buried, so that nobody else with its ID is killed."""
        self._ended = False
        self._link, theirs = Pipe(duplex=False)
        with theirs:
            self._pid = os.fork()
            if not self._pid:
                _answer_and_end(answer, theirs)

    def kill(self) -> None:
        """Ends the copy at once, because nobody wants the answer any more. Any thread may call it."""
        with self._guard:
            if not self._ended:
                os.kill(self._pid, signal.SIGKILL)

    def await_answer(self) -> AnswerT:
        """Waits for the answer and returns it, or raises what *answer* raised; either has to be picklable. One thread
        has to call it, once.

        Raises :class:`HelperEnded` if the copy was killed, for instance because it took too much memory or time.
        """
        said: Any = None
        try:
            with self._link, suppress(EOFError, OSError):
                said = self._link.recv()
        finally:
            with self._guard:
                status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
                self._ended = True
        if said is None:
            ends = {
                -signal.SIGALRM: f"took more than {LONGEST_S} s",
                -signal.SIGKILL: "was killed, maybe to save memory",
            }
            raise HelperEnded(ends.get(status) or describe_end(status))
        answered, answer = said
        if not answered:
            raise answer
        return answer  # type: ignore[no-any-return]


def _answer_and_end(answer: Callable[[], object], link: Connection[Any, Any]) -> NoReturn:
    try:
        gc.disable()  # It would touch, and so copy, all memory.
        # The signal handlers are the core's, which a copy would wake once more. A copy ends with the group; a reload is
        # nothing to it.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        with suppress(OSError):  # Where memory is short, the system shall end this process instead of the core.
            Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
        _close_files(link.fileno())
        lower_priority(_NICENESS)
        try:
            link.send((True, answer()))
        except Exception as error:  # noqa: BLE001 - passed on
            error.add_note(traceback.format_exc())
            link.send((False, error))
    finally:
        os._exit(0)


def _close_files(kept: int) -> None:
    """Closes all files but the standard ones and *kept*. So locks and ports are free as soon as the core ends, however
    it ends."""
    # A loop over all numbers that could be open may take minutes: in a container there may be a billion.
    for file in Path("/proc/self/fd").iterdir():
        number = int(file.name)
        if number > 2 and number != kept:
            with suppress(OSError):  # It was the list itself.
                os.close(number)
