"""Workloads: what comes to the cluster and when, without a configuration of queues.

Every workload becomes a scenario of :mod:`kornel.shim_mock` for one configuration and one seed. Its simulated seconds
are the core's own.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from kornel.shim_mock.queues import QueueLimits, read_queues
from kornel.shim_mock.scenario import Application, NodeGroup, Scenario, TaskGroup, load_scenario
from kornel.shim_mock.trace import CLASS_OF_QUEUE, Trace, load_trace, make_node_groups

Workload: TypeAlias = Callable[[str, int], Scenario]
"""Returns the scenario for a configuration, as text, and a seed."""

GENERATED: Final = "generated"
CORES, GIB_PER_CORE = 64, 4
"""The cores of each node of a generated cluster; a core comes with so much memory, and a task asks for both alike."""
TASKS_OF_A_JOB: Final = (1, 1, 1, 2, 4, 8)
CORES_OF_A_TASK: Final = (1, 1, 2, 4, 8, 16)
MEDIAN_RUN_S, RUN_SIGMA, LONGEST_RUN_S = 900.0, 1.2, 86_400.0
USERS: Final = ("ann", "ben", "cem", "dora")
GIB: Final = 2**30


class WorkloadError(ValueError):
    """A workload cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The settings of a generated workload. *load* is the demand as a share of all cores."""

    hours: float = 24.0
    nodes: int = 20
    load: float = 1.0


def open_workload(name: str, generation: Generation) -> Workload:
    """Returns the workload called *name*: a scenario file, the folder of a trace, or ``generated``.

    Raises :class:`WorkloadError`, or InputError with the file, line and field of each mistake.
    """
    if name == GENERATED:
        return lambda config, seed: generate_scenario(config, seed, generation)
    if "\0" in name:
        raise WorkloadError(f"{name}: no file has such a name")
    path = Path(name)
    if path.is_dir():
        trace = load_trace(path)
        return lambda config, _: replay_trace(trace, config, path.name)
    scenario = load_scenario(path)
    if scenario.changes:
        raise WorkloadError(f"{name}: changes: the workload changes the configuration that is to be simulated")
    return lambda config, seed: _replace_configuration(scenario, config, seed)


def generate_scenario(config: str, seed: int, generation: Generation) -> Scenario:
    """Returns jobs that come at random to the leaves of *config*, as *seed* has it: the same ones for all
    configurations with the same leaves. Raises :class:`WorkloadError` if there is no leaf."""
    queues = read_queues(config)
    leaves = list_leaves(queues)
    nodes = NodeGroup("node", {"vcore": CORES * 1_000, "memory": CORES * GIB_PER_CORE * GIB}, count=generation.nodes)
    return Scenario(
        name=GENERATED,
        config=config,
        queues=queues,
        nodes=(nodes,),
        applications=tuple(_draw_jobs(leaves, random.Random(seed), generation)),
        duration_s=generation.hours * 3600,
    )


def replay_trace(trace: Trace, config: str, name: str) -> Scenario:
    """Returns the pods of *trace* at their own times, each as an application. One without an end runs until the
    last event of the trace."""
    first = min((pod.created for pod in trace.pods), default=0)
    applications = tuple(
        Application(
            id=pod.name,
            queue=pod.queue,
            tasks=(
                TaskGroup(
                    "pod",
                    pod.resources,
                    priority_class=CLASS_OF_QUEUE[pod.queue],
                    runtime_s=pod.ran_s,
                    restart=True,
                    devices=pod.devices,
                    keys=(pod.name,),
                ),
            ),
            at_s=float(pod.created - first),
        )
        for pod in trace.pods
    )
    last = max((pod.last for pod in trace.pods), default=0)
    return Scenario(
        name=name,
        config=config,
        queues=read_queues(config),
        nodes=tuple(make_node_groups(trace.nodes)),
        applications=applications,
        duration_s=float(last - first),
    )


def list_leaves(queues: dict[str, QueueLimits]) -> list[str]:
    """Returns the paths of the leaves among *queues*, in the order of their names. Root is none. Raises
    :class:`WorkloadError` if there is no leaf."""
    parents = {path.rpartition(".")[0] for path in queues}
    leaves = sorted(path for path in queues if path not in parents and path != "root")
    if not leaves:
        raise WorkloadError("there is no leaf queue below root, to which jobs could come")
    return leaves


def _replace_configuration(scenario: Scenario, config: str, seed: int) -> Scenario:
    return dataclasses.replace(
        scenario,
        config=config,
        queues=read_queues(config),
        releases=dataclasses.replace(scenario.releases, seed=seed),
        expectations=(),
        speed=1.0,
    )


def _draw_jobs(leaves: list[str], dice: random.Random, generation: Generation) -> Iterator[Application]:
    """Yields jobs whose tasks ask, all together, for so many cores as the load says."""
    mean_run_s = MEDIAN_RUN_S * math.exp(RUN_SIGMA**2 / 2)
    mean_cores = sum(CORES_OF_A_TASK) / len(CORES_OF_A_TASK) * sum(TASKS_OF_A_JOB) / len(TASKS_OF_A_JOB)
    between_s = mean_run_s * mean_cores / (generation.load * generation.nodes * CORES)
    at_s = dice.expovariate(1 / between_s)
    number = 0
    while at_s < generation.hours * 3600:
        cores = dice.choice(CORES_OF_A_TASK)
        tasks = TaskGroup(
            "task",
            {"vcore": 1_000 * cores, "memory": cores * GIB_PER_CORE * GIB},
            count=dice.choice(TASKS_OF_A_JOB),
            runtime_s=min(LONGEST_RUN_S, dice.lognormvariate(math.log(MEDIAN_RUN_S), RUN_SIGMA)),
            restart=True,
        )
        user = dice.choice(USERS)
        yield Application(f"job-{number}", dice.choice(leaves), (tasks,), user=user, groups=(user,), at_s=at_s)
        number += 1
        at_s += dice.expovariate(1 / between_s)
