"""Answers to requests of the command line, from the dispatcher, the store and the agents."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from kornel.shim_local.jobs.dispatcher import Dispatcher, Refused
from kornel.shim_local.jobs.spec import BadSpec, JobSpec
from kornel.shim_local.jobs.task import Job, Task, TaskState
from kornel.shim_local.server.agent_links import AgentAway, AgentLinks

MOST_JOBS: Final = 1000
CHANGEABLE: Final = frozenset({"priority", "vcore", "memory", "gpu", "time_s"})
"""The values of a job that can be changed while it waits."""


class Commands:
    """Answers requests. A request is an object with ``do``; an answer contains ``error`` or the requested values."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        links: AgentLinks,
        describe: Callable[[], dict[str, Any]],
        stop: Callable[[bool], None],
        default_queue: str,
    ) -> None:
        """Prepares the answers. *describe* returns the server's status; *stop* ends the server, with or without its
        core."""
        self._default_queue = default_queue
        self._dispatcher = dispatcher
        self._links = links
        self._describe = describe
        self._stop = stop

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to *request*."""
        handlers = {
            "submit": self._submit, "ps": self._list_jobs, "show": self._show, "cancel": self._cancel_tasks,
            "hold": self._hold_jobs, "release": self._release_jobs, "change": self._change_jobs,
            "scale": self._scale_job, "workers": self._list_workers, "wait": self._wait, "logs": self._read_log,
            "status": self._show_status, "forget": self._forget_node, "down": self._take_down,
        }  # fmt: skip
        handler = handlers.get(str(request.get("do")))
        if handler is None:
            return {"error": f"the server does not know the request {request.get('do')!r}; is its version older?"}
        try:
            return await handler(request)
        except (Refused, BadSpec, AgentAway) as error:
            return {"error": str(error)}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": f"the request cannot be understood: {error!r}"}

    async def _submit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(request["spec"])
        job = self._dispatcher.submit(JobSpec.from_json(values | {"queue": values["queue"] or self._default_queue}))
        return {"job": job.id, "tasks": len(job.tasks), "note": self._find_shortage(job.spec)}

    def _find_shortage(self, spec: JobSpec) -> str:
        """Returns the reason why a job cannot run on any known machine, or an empty text if it can."""
        capacities = [node.record["capacity"] for node in self._dispatcher.nodes.values()]
        wanted = {"vcore": spec.vcore, "memory": spec.memory, "gpus": spec.gpu}
        if any(all(amount <= has[name] for name, amount in wanted.items()) for has in capacities):
            return ""
        if spec.gpu and not any(has["gpus"] for has in capacities):
            return "no machine has a GPU, so the job waits until one joins that does"
        return "no machine is large enough for this job, so it waits until one joins that is"

    async def _list_jobs(self, request: Mapping[str, Any]) -> dict[str, Any]:
        jobs = dict(self._dispatcher.jobs)
        if most := min(int(request.get("recent", 0)), MOST_JOBS):
            jobs = self._dispatcher.store.load_recent(most) | jobs
        return {"jobs": [_summarize_job(jobs[number], tasks=bool(request.get("tasks"))) for number in sorted(jobs)]}

    async def _show(self, request: Mapping[str, Any]) -> dict[str, Any]:
        job, tasks = self._dispatcher.find_tasks(str(request["name"]))
        shown = _summarize_job(job, tasks=False)
        spec = job.spec.to_json()
        del spec["environment"]
        paused = self._dispatcher.is_paused
        return {
            "job": shown | spec,
            "tasks": [task.to_json() | {"key": task.key, "paused": paused(task)} for task in tasks],
        }

    async def _cancel_tasks(self, request: Mapping[str, Any]) -> dict[str, Any]:
        names = [str(name) for name in request["names"]]
        found = [self._dispatcher.find_tasks(name) for name in names]
        warned = bool(request.get("notice"))
        cancel = self._dispatcher.cancel
        return {"cancelled": sum(cancel(job, tasks, warned=warned) for job, tasks in found)}

    async def _scale_job(self, request: Mapping[str, Any]) -> dict[str, Any]:
        (job,) = self._find_jobs({"names": [request["name"]]})
        self._dispatcher.scale_job(job, int(request["size"]))
        return {}

    async def _list_workers(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns little of each task, as programs with thousands of workers ask every second."""
        over = (TaskState.DONE, TaskState.CANCELLED)
        _, tasks = self._dispatcher.find_tasks(str(request["name"]))
        return {
            "workers": [
                (task.name, task.attempt, task.state, task.node, task.reason)
                for task in tasks
                if task.state not in over and not task.is_cancelled
            ]
        }

    async def _wait(self, request: Mapping[str, Any]) -> dict[str, Any]:
        names = [str(name) for name in request["names"]]
        numbers = {self._dispatcher.find_tasks(name)[0].id for name in names}
        await asyncio.gather(*map(self._dispatcher.wait_for_job, sorted(numbers)))
        tasks = [(job, task) for name in names for job, tasks in [self._dispatcher.find_tasks(name)] for task in tasks]
        return {"tasks": [task.to_json() | {"text": describe_task(task)} for _, task in tasks]}

    async def _read_log(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _, tasks = self._dispatcher.find_tasks(str(request["name"]))
        if len(tasks) != 1:
            return {"tasks": [task.to_json() for task in tasks]}
        (task,) = tasks
        attempt = int(request.get("attempt") or (task.attempt if task.node else max(1, task.attempt - 1)))
        key = f"{task.name}-{attempt}"
        node = task.node if attempt == task.attempt else str(request.get("node") or "")
        state = {"attempt": attempt, "state": str(task.state), "over": task.state.is_final, "current": task.attempt}
        if not task.node and attempt == task.attempt:
            return state | {"data": "", "node": ""}
        # Earlier attempts may have run on other machines, which have their logs.
        nodes = [node] if node else [name for name, each in self._dispatcher.nodes.items() if each.online]
        for name in nodes:
            answer = await self._links.ask(name, {"do": "read", "key": key, "offset": int(request["offset"])})
            if answer["data"] or len(nodes) == 1:
                return state | {"data": answer["data"], "node": name}
        return state | {"data": "", "node": node}

    async def _show_status(self, request: Mapping[str, Any]) -> dict[str, Any]:
        used: dict[str, dict[str, float]] = {name: {} for name in self._dispatcher.nodes}
        for job, task in self._dispatcher.live_tasks(TaskState.RUNNING):
            usage = used.setdefault(task.node, {})
            spec = job.spec
            for name, amount in (("tasks", 1), ("vcore", spec.vcore), ("memory", spec.memory), ("gpus", spec.gpu)):
                usage[name] = round(usage.get(name, 0) + amount, 3)
        nodes = [
            {"name": name, "online": node.online, **node.record, "used": dict(used[name])}
            for name, node in sorted(self._dispatcher.nodes.items())
        ]
        counts = Counter(str(task.state) for job in self._dispatcher.jobs.values() for task in job.tasks.values())
        return {
            **self._describe(),
            "trouble": self._dispatcher.trouble,
            "nodes": nodes,
            "tasks": dict(counts),
            "jobs": len(self._dispatcher.jobs),
        }

    async def _forget_node(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"lost": self._dispatcher.forget_node(str(request["node"]))}

    async def _take_down(self, request: Mapping[str, Any]) -> dict[str, Any]:
        running = sum(1 for _ in self._dispatcher.live_tasks(TaskState.RUNNING))
        self._stop(bool(request.get("core", True)))
        return {"running": running}

    def _find_jobs(self, request: Mapping[str, Any]) -> list[Job]:
        """Returns the jobs that *request* names as a whole."""
        found = [(str(name), self._dispatcher.find_tasks(str(name))[0]) for name in request["names"]]
        if single := next((name for name, _ in found if "." in name), ""):
            raise Refused(f"{single} is a task of an array, which is held, changed or scaled as a whole")
        return [job for _, job in found]

    async def _hold_jobs(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"held": sum(map(self._dispatcher.hold, self._find_jobs(request)))}

    async def _release_jobs(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"released": sum(map(self._dispatcher.release, self._find_jobs(request)))}

    async def _change_jobs(self, request: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: value for name, value in request["values"].items() if name in CHANGEABLE}
        return {"changed": sum([self._dispatcher.change(job, values) for job in self._find_jobs(request)])}


def describe_task(task: Task) -> str:
    """Returns the state of a task in words."""
    if task.state is TaskState.DONE:
        return "done"
    if task.state is TaskState.RUNNING and task.stopping:
        return "is being stopped"
    return f"{task.state}: {task.reason}" if task.reason not in ("", str(task.state)) else str(task.state)


def _summarize_job(job: Job, *, tasks: bool) -> dict[str, Any]:
    spec = job.spec
    counts = Counter(str(task.state) for task in job.tasks.values())
    shown = [job.tasks[index] for index in sorted(job.tasks)] if tasks or len(job.tasks) == 1 else []
    return {
        "id": job.id, "name": spec.shown_name, "queue": spec.queue_path, "user": spec.user,
        "submitted_s": job.submitted_s, "vcore": spec.vcore, "memory": spec.memory, "gpu": spec.gpu,
        "priority": spec.priority, "after": list(spec.predecessors), "at_once": spec.at_once, "on_hold": spec.on_hold,
        "counts": dict(counts), "size": len(job.tasks), "array": bool(spec.indexes),
        "tasks": [task.to_json() | {"text": describe_task(task)} for task in shown],
    }  # fmt: skip
