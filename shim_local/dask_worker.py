"""A worker of Dask as a worker of a group: on the notice of a preemption it closes gracefully.

It has no nanny, because kornel-local starts it again if that is due, and two who do so would be one too many.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from typing import Any, Final

from distributed import Worker

DEATH_TIMEOUT: Final = "60s"
"""The time after which a worker that finds no scheduler gives up."""
LOOK_AGAIN_S: Final = 0.05


class PromptWorker(Worker):  # type: ignore[misc] # it has no types where Dask is not installed
    """A worker that never waits for the threads of its tasks when it closes.

    A worker that the scheduler could not retire is set to run on, and then closes a second time when its connection
    ends. The second call would wait for threads that the first one has left without work, for half a minute.
    """

    async def close(self, *values: Any, **options: Any) -> Any:
        """Close as Worker does, whose values it takes."""
        return await super().close(*values, **{**options, "executor_wait": False})


async def run_worker(scheduler: str, threads: int, memory: str) -> None:
    """Serve the scheduler at an address until it, or kornel-local, ends this worker."""
    name = f"{os.environ['KORNEL_TASK']}-{os.environ['KORNEL_ATTEMPT']}"
    worker = PromptWorker(scheduler, name=name, nthreads=threads, memory_limit=memory, death_timeout=DEATH_TIMEOUT)
    loop, closing = asyncio.get_running_loop(), set[asyncio.Task[object]]()
    await worker
    loop.add_signal_handler(signal.SIGUSR1, lambda: closing.add(loop.create_task(close_gracefully(worker))))
    loop.add_signal_handler(signal.SIGTERM, lambda: closing.add(loop.create_task(worker.close(reason="SIGTERM"))))
    await worker.finished()


async def close_gracefully(worker: Worker) -> None:
    """Take no further tasks, finish those that run, have their results copied to other workers, and close.

    Where no other worker can take the results it closes at once, as they are lost however long it goes on.
    """
    retire_workers = worker.scheduler.retire_workers
    if not await retire_workers(workers=[worker.address], close_workers=False, remove=False):
        await worker.close(reason="notice of kornel-local, and no other worker")
        return
    while worker.state.all_running_tasks or not await are_results_known(worker):  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(LOOK_AGAIN_S)
    await retire_workers(workers=[worker.address], close_workers=False, remove=True)
    await worker.close(reason="notice of kornel-local")


async def are_results_known(worker: Worker) -> bool:
    """Tells whether the scheduler knows of all results that *worker* has. Only of those it has copies made."""
    holders = await worker.scheduler.who_has(keys=list(worker.data))
    return all(worker.address in addresses for addresses in holders.values())


def main() -> None:
    """Run a worker with the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="kornel.shim_local.dask_worker", description=__doc__)
    parser.add_argument("scheduler", help="address of the scheduler")
    parser.add_argument("--threads", type=int, default=1, help="tasks that it runs at a time")
    parser.add_argument("--memory", default="0", help="memory that it may use, in bytes; 0: without limit")
    given = parser.parse_args()
    asyncio.run(run_worker(given.scheduler, given.threads, given.memory))


if __name__ == "__main__":
    main()
