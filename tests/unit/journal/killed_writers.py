"""Writes a journal by one process after the other. Each goes on from the journal alone, has one ask placed, and is
killed: every other one as soon as the placement was told, the others while it is being written.

``python -m tests.unit.journal.killed_writers JOURNAL KILLS`` prints what was told, a key and a node on each line.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence

from kornel.core.domain.effects import Allocated, Effect
from tests.unit.journal.made import asks, decide, open_journal, small_cluster

LONGEST_WRITE_S = 0.004
"""The time within which a process is killed that is to be killed while it writes."""


def kill_this() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def place_and_die(where: str, number: int, delay_s: float) -> None:
    """Has ask *number* placed, tells the placement, and ends by SIGKILL: at once, or *delay_s* after the decision."""
    journal = open_journal(where)
    journal.start()
    now_ns = journal.last_ns + 1
    effects: Sequence[Effect] = (
        *journal.first.engine.apply(asks(number), now_ns),
        *journal.first.engine.cycle(now_ns, 1).effects,
    )
    if delay_s:
        threading.Timer(delay_s, kill_this).start()

    def tell() -> None:
        for effect in effects:
            if isinstance(effect, Allocated):
                os.write(sys.stdout.fileno(), f"{effect.spec.key} {effect.node_id}\n".encode())
        if not delay_s:
            kill_this()

    journal.first.gate.pass_on(tell)
    await asyncio.Event().wait()


async def begin(where: str) -> None:
    """Writes the records of a small cluster."""
    journal = open_journal(where)
    journal.start()
    await decide(journal, small_cluster())
    journal.close(60.0)


def in_a_fork(run: object, *arguments: object) -> int:
    """Runs the coroutine function *run* in a process of its own. Returns how the process ended."""
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1]
    try:
        asyncio.run(run(*arguments))  # type: ignore[operator]
    finally:
        os._exit(3)


def main(where: str, kills: int) -> None:
    asyncio.run(begin(where))
    dice = random.Random(kills)
    for number in range(kills):
        delay_s = dice.uniform(0.0001, LONGEST_WRITE_S) if number % 2 else 0.0
        ended = in_a_fork(place_and_die, where, number, delay_s)
        assert os.WIFSIGNALED(ended), f"writer {number} could not go on"
        assert os.WTERMSIG(ended) == signal.SIGKILL


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
