"""The interface for programs that bring their own tasks: groups of workers, which they start, scale and stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kornel.shim_local.background import SOCKET
from kornel.shim_local.client import ServerConnection
from kornel.shim_local.jobs.spec import DEFAULT_GRACE_S, DEFAULT_KILL_S, DEFAULT_LOG_BYTES, BadSpec
from kornel.shim_local.jobs.task import TaskState
from kornel.shim_local.submission import find_state_folder, make_spec

DEFAULT_RETRIES: Final = 3


@dataclass(frozen=True, slots=True)
class GroupWorker:
    """A worker of a group as it was when it was asked about. *task* is its name for ``kornel-local``, such as
    ``17.3``."""

    task: str
    attempt: int
    """The number of its current process: 1 at first, and one more each time it is started again."""
    state: TaskState
    """``held``, ``queued`` while it waits for room, ``running``, or ``failed`` if it is not started again."""
    node: str
    """The machine on which it was placed; empty while it waits."""
    reason: str
    """The reason for its state in words; may be empty."""

    @property
    def key(self) -> str:
        """The name of this process of the worker, which no other process has: ``$KORNEL_TASK-$KORNEL_ATTEMPT``."""
        return f"{self.task}-{self.attempt}"


class Cluster:
    """The server of ``kornel-local`` in a state directory, for a program that starts workers on its machines.

    Each call asks the server by a connection of its own, so that the server may be restarted in between, and calls may
    come from any thread. They wait for the answer of the server, not for workers. Every call may raise NoServer, if no
    server runs, and RequestRefused with the reason of the server.
    """

    def __init__(self, state: Path | None = None) -> None:
        """*state* is the state directory, by default that of the command ``kornel-local``. Raises NoServer."""
        self.state: Final = find_state_folder(state)
        self.send_request({"do": "status"})

    def send_request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer of the server to *message*."""
        with ServerConnection(self.state / SOCKET) as server:
            return server.request(message)

    def start(
        self,
        command: Sequence[str],
        size: int,
        *,
        at_least: int = 0,
        vcore: str | float = "1",
        memory: str = "0",
        gpu: float = 0,
        queue: str = "",
        priority: int = 0,
        name: str = "",
        directory: Path | None = None,
        env: Mapping[str, str] | None = None,
        grace: str = f"{DEFAULT_GRACE_S:g}s",
        kill_after: str = f"{DEFAULT_KILL_S:g}s",
        retries: int = DEFAULT_RETRIES,
        preemptible: bool = True,
    ) -> WorkerGroup:
        """Starts a group of *size* workers, all with the same *command*, and returns it without waiting for room.

        With *at_least* above 1 they are a gang: so many start together, or none does; the others follow one by one.
        The other values mean what the options of ``kornel-local submit`` mean: amounts for each worker (``"500m"``,
        ``"4Gi"``), the notice that a worker gets before it has to end (*grace*), and how often the command of a worker
        is started again after it has failed. A worker that was preempted, or lost with its machine, is always started
        again, and one whose command exits with 0 never is. Raises BadSpec or BadAmount, both of them a ValueError.
        """
        if isinstance(command, str):
            raise BadSpec(f"a command is a list of words, such as {command.split()}")
        if size < 1:
            raise BadSpec(f"a group begins with a worker at least, not with {size}")
        options = {
            "array": f"0-{size - 1}", "at_least": at_least, "vcore": str(vcore), "memory": str(memory), "gpu": gpu,
            "queue": queue, "priority": priority, "name": name, "directory": directory,
            "env": [f"{variable}={value}" for variable, value in (env or {}).items()], "grace": str(grace),
            "kill_after": str(kill_after), "retries": retries, "preemptible": preemptible, "requeue": True,
            "after": None, "after_any": None, "time_limit": "", "log_limit": f"{DEFAULT_LOG_BYTES // 2**20}Mi",
        }  # fmt: skip
        spec = make_spec(self.state, list(command), options)
        return WorkerGroup(self, int(self.send_request({"do": "submit", "spec": spec.to_json()})["job"]))

    def find_group(self, job: int) -> WorkerGroup:
        """Returns the group with the number *job*, which another program may have started."""
        self.send_request({"do": "workers", "name": str(job)})
        return WorkerGroup(self, job)


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """A group of workers: an array of ``kornel-local`` with the number *job*, whose size may be changed."""

    cluster: Cluster
    job: int

    def list_workers(self) -> list[GroupWorker]:
        """Returns the workers that wait, run, or have failed for good; not those that were asked to end."""
        workers = self.cluster.send_request({"do": "workers", "name": str(self.job)})["workers"]
        return [GroupWorker(task, attempt, TaskState(state), *place) for task, attempt, state, *place in workers]

    def scale(self, size: int) -> None:
        """Has the group have *size* workers, those that wait for room included; a group that had none left begins anew.

        Too many are stopped with the notice of a preemption, first those that wait, then the latest. A gang has
        *at_least* workers or none. Raises RequestRefused.
        """
        self.cluster.send_request({"do": "scale", "name": str(self.job), "size": size})

    def stop_workers(self, tasks: Iterable[str]) -> None:
        """Stop the workers with these names, such as ``17.3``, with the notice of a preemption. They are not started
        again, and the others go on, even if fewer are left than a gang started with."""
        self.cluster.send_request({"do": "cancel", "names": list(tasks), "notice": True})

    def stop(self, *, notice: bool = True) -> None:
        """Stop all workers: with the notice of a preemption, or by SIGTERM at once."""
        self.cluster.send_request({"do": "cancel", "names": [str(self.job)], "notice": notice})
