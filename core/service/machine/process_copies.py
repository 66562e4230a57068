"""Answers questions in a copy of this process, so that nobody waits for the answer but who asked.

The system copies the process at once, and its memory page by page, as the core or the copy writes to it. So an answer
is about the moment of the copy, and may change whatever it likes on the way.
"""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final, NoReturn, TypeVar

from kornel.core.service.machine.helpers import HelperEnded, lower_priority

_NICENESS: Final = 5
_MOST_FILES: Final = os.sysconf("SC_OPEN_MAX")

AnswerT = TypeVar("AnswerT")


def begin_answer(answer: Callable[[], AnswerT]) -> Callable[[], AnswerT]:
    """Calls *answer* in a copy of this process, where only this thread goes on, so it must not log or use a network.
    gRPC must have been imported with ``GRPC_ENABLE_FORK_SUPPORT=false``; else it starts threads in the copy.

    Returns a function for any thread that waits for the answer and returns it, or raises what *answer* raised; either
    has to be picklable. It raises :class:`HelperEnded` if the copy was killed, for instance because it took too much
    memory. Raises :class:`OSError` if there can be no copy.
    """
    ours, theirs = Pipe(duplex=False)
    with theirs:
        pid = os.fork()
        if not pid:
            _answer_and_end(answer, theirs)
    return partial(_await_answer, pid, ours)


def _answer_and_end(answer: Callable[[], object], link: Connection[Any, Any]) -> NoReturn:
    try:
        # Signals to the whole group are meant for the core, which a copy would wake once more.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # Locks and ports are free as soon as the core ends, however it ends.
        os.closerange(3, link.fileno())
        os.closerange(link.fileno() + 1, _MOST_FILES)
        lower_priority(_NICENESS)
        gc.disable()  # It would touch, and so copy, all memory.
        said: tuple[bool, object]
        try:
            said = True, answer()
        except Exception as error:  # noqa: BLE001 - passed on
            error.add_note(traceback.format_exc())
            said = False, error
        link.send(said)
    finally:
        os._exit(0)


def _await_answer(pid: int, link: Connection[Any, Any]) -> Any:
    with link:
        try:
            answered, answer = link.recv()
        except EOFError:
            answered, answer = False, HelperEnded("was ended before it had one")
    os.waitpid(pid, 0)
    if not answered:
        raise answer
    return answer
