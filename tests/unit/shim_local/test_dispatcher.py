"""Decisions about jobs, with a core and agents that only note what is asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kornel.shim_local.jobs.dispatcher import Dispatcher, Node, Refused
from kornel.shim_local.jobs.spec import BadSpec, JobSpec
from kornel.shim_local.jobs.store import JobStore, StoreUnwritable
from kornel.shim_local.jobs.task import Job, Task, TaskState

STOPPED, PREEMPTED = 1, 3
SPEC = JobSpec(("true",), "/", {}, "me", queue="q", grace_s=30.0)


class World:
    """A dispatcher, and everything that it asked for."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.grace_s = 0.0
        self.store = JobStore(folder / "jobs.db")
        self.dispatcher = Dispatcher(self.store, self, self, lambda: 100.0)

    def close(self) -> None:
        """Closes the store."""
        self.store.close()

    def request_room(self, job: Job, task: Task) -> None:
        self.said.append(f"ask {task.key}")

    def release(self, job: Job, key: str, termination: int) -> None:
        self.said.append(f"release {key} {termination}")

    def report_node(self, node: Node) -> None:
        self.said.append(f"node {node.name} {'there' if node.online else 'away'}")

    def remove_node(self, name: str) -> None:
        self.said.append(f"node {name} removed")

    def send(self, node: str, message: Mapping[str, Any]) -> None:
        self.grace_s = message.get("grace_s", 0.0)
        self.said.append(f"{node}: {message['do']} {message['key']}" + f" {message.get('reason', '')}".rstrip())

    async def take(self) -> list[str]:
        """Returns what was asked for since the last time."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        said, self.said = self.said, []
        return said

    def connect(self, name: str = "n", **attempts: Any) -> None:
        """Have an agent introduce itself. Attempts are given with the end of each, by keys with _ for -."""
        found = {
            key.replace("_", "-").removeprefix("k"): {"start": {"at": 5.0}, "end": end} for key, end in attempts.items()
        }
        hello = {"node": name, "capacity": {"vcore": 1, "memory": 1, "gpus": 0}, "limits": "", "boot": "b"}
        self.dispatcher.connect_agent({**hello, "attempts": found})


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A world with one machine."""
    with closing(World(tmp_path)) as world:
        world.connect()
        assert await world.take() == ["node n there"]
        yield world


async def test_a_task_goes_from_the_core_to_an_agent_and_back(world: World) -> None:
    """The agent is asked after it is written down, and may forget only what is."""
    job = world.dispatcher.submit(SPEC)
    world.dispatcher.place_task("1-1", "job-1", "n")
    assert await world.take() == ["ask 1-1", "n: start 1-1"]
    world.dispatcher.start_task("1-1", 6.0)
    world.dispatcher.end_attempt("1-1", {"at": 7.0, "status": 0}, "n")
    assert await world.take() == ["release 1-1 1", "n: confirm 1-1"]
    stored = world.store.load_job(job.id)
    assert stored is not None
    assert stored.is_done
    assert not world.dispatcher.jobs


async def test_nothing_is_sent_that_is_not_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without space delays the start, and nothing is forgotten."""
    world.dispatcher.submit(SPEC)
    await world.take()

    def fail(_tasks: object) -> None:
        raise StoreUnwritable("full")

    with monkeypatch.context() as broken:
        broken.setattr(world.store, "save_changes", fail)
        world.dispatcher.place_task("1-1", "job-1", "n")
        assert await world.take() == []
        assert world.dispatcher.trouble == "full"
        assert not world.dispatcher.flush()
    assert world.dispatcher.flush()
    assert world.said == ["n: start 1-1"]
    assert world.dispatcher.trouble == ""


async def test_a_victim_is_stopped_confirmed_and_asked_for_again(world: World) -> None:
    """Under another key, so that late messages about the first attempt concern nobody."""
    world.dispatcher.submit(SPEC)
    world.dispatcher.place_task("1-1", "job-1", "n")
    await world.take()
    world.dispatcher.release_task("1-1", "job-1", PREEMPTED, "for a better one", wanted=True)
    world.dispatcher.release_task("1-1", "job-1", PREEMPTED, "for a better one", wanted=True)
    assert await world.take() == ["n: stop 1-1 preempt"] * 2
    world.dispatcher.end_attempt("1-1", {"at": 7.0, "status": -15, "stopped": "preempt"}, "n")
    assert sorted(await world.take()) == ["ask 1-2", "n: confirm 1-1", "release 1-1 3"]
    world.dispatcher.release_task("1-1", "job-1", PREEMPTED, "again", wanted=True)
    assert await world.take() == ["release 1-1 3"]
    (task,) = world.dispatcher.jobs[1].tasks.values()
    assert (task.preemptions, task.state) == (1, TaskState.QUEUED)


async def test_what_ends_well_just_before_it_is_stopped_is_done(world: World) -> None:
    world.dispatcher.submit(SPEC)
    world.dispatcher.place_task("1-1", "job-1", "n")
    world.dispatcher.release_task("1-1", "job-1", PREEMPTED, "", wanted=True)
    await world.take()
    world.dispatcher.end_attempt("1-1", {"at": 7.0, "status": 0, "stopped": ""}, "n")
    assert "release 1-1 3" in await world.take()
    assert world.dispatcher.find_job(1).is_done


async def test_a_server_that_comes_back_compares(world: World, tmp_path: Path) -> None:
    """What runs is left alone, what has ended is read, what never began is started, and strangers are stopped."""
    for _ in range(3):
        world.dispatcher.submit(SPEC)
    for number in (1, 2, 3):
        world.dispatcher.place_task(f"{number}-1", f"job-{number}", "n")
    await world.take()
    world.close()
    with closing(World(tmp_path)) as again:
        assert [task.key for _, task in again.dispatcher.live_tasks(TaskState.RUNNING)] == ["1-1", "2-1", "3-1"]
        again.connect(k1_1=None, k2_1={"at": 9.0, "status": 0}, k8_1=None, k9_1={"at": 9.0, "status": 0})
        said = await again.take()
        assert {"n: start 3-1", "n: stop 8-1 cancel", "n: confirm 9-1", "n: confirm 2-1", "release 2-1 1"} <= set(said)
        assert not any("1-1" in each.split() for each in said)
        assert again.dispatcher.find_job(2).is_done


async def test_a_cancellation_outlives_the_server(world: World, tmp_path: Path) -> None:
    """The agent is asked again when it is back; what it never started is cancelled at once."""
    for number in (1, 2):
        job = world.dispatcher.submit(SPEC)
        world.dispatcher.place_task(f"{number}-1", f"job-{number}", "n")
        await world.take()
        assert world.dispatcher.cancel(job, job.tasks.values()) == 1
        assert world.dispatcher.cancel(job, job.tasks.values()) == 0
    await world.take()
    world.close()
    with closing(World(tmp_path)) as again:
        again.connect(k1_1=None)
        assert "n: stop 1-1 cancel" in await again.take()
        assert again.dispatcher.find_job(2).tasks[-1].state is TaskState.CANCELLED


async def test_nothing_is_placed_on_a_machine_that_is_away(world: World) -> None:
    """It was not started, so it may go elsewhere at once."""
    world.dispatcher.submit(SPEC)
    world.dispatcher.disconnect_agent("n")
    await world.take()
    world.dispatcher.place_task("1-1", "job-1", "n")
    assert await world.take() == ["ask 1-2", "release 1-1 1"]


async def test_what_runs_on_a_machine_that_is_away_waits(world: World) -> None:
    """Nobody can know that it has ended, unless a person does."""
    world.dispatcher.submit(SPEC)
    world.dispatcher.place_task("1-1", "job-1", "n")
    await world.take()
    with pytest.raises(Refused, match="is connected"):
        world.dispatcher.forget_node("n")
    world.dispatcher.disconnect_agent("n")
    assert await world.take() == ["node n away"]
    assert world.dispatcher.forget_node("n") == 1
    assert set(await world.take()) >= {"ask 1-2", "release 1-1 1", "node n removed"}


@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [
        ({"status": 0}, TaskState.DONE, ""),
        ({"status": 9}, TaskState.FAILED, "exit status 9"),
        ({"status": -11}, TaskState.FAILED, "killed by SIGSEGV"),
        ({"status": -9, "oom": True}, TaskState.FAILED, "ran out of its 64Mi of memory"),
        ({"status": -15, "stopped": "time"}, TaskState.FAILED, "ran longer than its limit of 1h"),
        ({"refused": "cannot run x: y"}, TaskState.FAILED, "cannot run x: y"),
        ({"status": 0, "stopped": "cancel"}, TaskState.CANCELLED, "cancelled"),
        ({"lost": "it was lost"}, TaskState.FAILED, "it was lost, and may not be started again"),
        ({"stopped": "preempt"}, TaskState.FAILED, "preempted, and may not be started again"),
    ],
)  # fmt: skip
async def test_an_end_has_a_reason(world: World, end: dict[str, Any], state: TaskState, reason: str) -> None:
    job = world.dispatcher.submit(JobSpec(("x",), "/", {}, "me", memory=2**26, time_s=3600.0, requeue=False))
    world.dispatcher.place_task("1-1", "job-1", "n")
    world.dispatcher.end_attempt("1-1", {"at": 7.0, **end}, "n")
    assert (job.tasks[-1].state, job.tasks[-1].reason) == (state, reason)


async def test_a_machine_that_cannot_start_it_gives_it_back(world: World) -> None:
    """A job is not failed by a full disk of an agent; it pauses, and is not reported as waiting meanwhile."""
    job = world.dispatcher.submit(SPEC)
    world.dispatcher.place_task("1-1", "job-1", "n")
    world.dispatcher.end_attempt("1-1", {"at": 7.0, "unready": "No space left on device"}, "n")
    assert "ask 1-2" not in await world.take()
    assert job.tasks[-1].reason == "n could not start it: No space left on device"
    assert not list(world.dispatcher.live_tasks(TaskState.QUEUED))


async def test_what_the_core_refuses_fails(world: World) -> None:
    """What waits at once; what runs is stopped before."""
    first, second = world.dispatcher.submit(SPEC), world.dispatcher.submit(SPEC)
    world.dispatcher.place_task("2-1", "job-2", "n")
    await world.take()
    world.dispatcher.refuse_application(1, "no-queue: root.q")
    world.dispatcher.refuse_application(2, "no-queue: root.q")
    assert await world.take() == ["n: stop 2-1 refused"]
    assert (first.tasks[-1].state, first.tasks[-1].reason) == (TaskState.FAILED, "no-queue: root.q")
    world.dispatcher.end_attempt("2-1", {"at": 7.0, "status": -15, "stopped": "refused"}, "n")
    assert (second.tasks[-1].state, second.tasks[-1].reason) == (TaskState.FAILED, "no-queue: root.q")


async def test_what_is_lost_again_and_again_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first loss costs nothing, further ones growing pauses, the seventh in a row the job; a long run counts as
    none."""
    pauses: list[float] = []
    reasons: list[str] = []

    def pass_over(pause_s: float, act: Callable[..., None], *given: object) -> None:
        pauses.append(pause_s)
        act(*given)

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", pass_over)
    job = world.dispatcher.submit(SPEC)
    (task,) = job.tasks.values()
    for attempt, ran_s in enumerate((1.0, 1.0, 4000.0, *[1.0] * 6), 1):
        world.dispatcher.place_task(f"1-{attempt}", "job-1", "n")
        world.dispatcher.start_task(f"1-{attempt}", 10.0)
        assert task.state is TaskState.RUNNING
        world.dispatcher.end_attempt(f"1-{attempt}", {"at": 10.0 + ran_s, "lost": "its supervisor was killed"}, "n")
        reasons.append(task.reason)
        await world.take()
    assert pauses == [2.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    assert reasons[3] == "its supervisor was killed; tried again after 2s"
    assert (task.state, task.reason) == (
        TaskState.FAILED,
        "its supervisor was killed: 7 attempts in a row were lost",
    )


async def test_what_was_cancelled_is_over_in_whatever_way_it_ends(world: World) -> None:
    """Its supervisor may be killed while the job handles SIGTERM."""
    job = world.dispatcher.submit(SPEC)
    world.dispatcher.place_task("1-1", "job-1", "n")
    assert world.dispatcher.cancel(job, job.tasks.values()) == 1
    world.dispatcher.end_attempt("1-1", {"at": 7.0, "lost": "its supervisor was killed"}, "n")
    assert job.tasks[-1].state is TaskState.CANCELLED


async def test_a_job_can_wait_for_an_end_of_whatever_kind(world: World) -> None:
    """The end of the first starts what follows it in any case, and cancels what needed its success."""
    first = world.dispatcher.submit(SPEC)
    follows = world.dispatcher.submit(replace(SPEC, after_any=(first.id,)))
    needs = world.dispatcher.submit(replace(SPEC, after=(first.id,)))
    assert follows.tasks[-1].state is TaskState.HELD
    world.dispatcher.place_task("1-1", "job-1", "n")
    world.dispatcher.end_attempt("1-1", {"at": 7.0, "status": 9}, "n")
    assert "ask 2-1" in await world.take()
    assert (follows.tasks[-1].state, needs.tasks[-1].state) == (TaskState.QUEUED, TaskState.CANCELLED)
    assert world.dispatcher.submit(replace(SPEC, after_any=(first.id,))).tasks[-1].state is TaskState.QUEUED


async def test_an_array_can_run_a_few_tasks_at_a_time(world: World, tmp_path: Path) -> None:
    """The next one is asked for when one has ended for good; none is when all are cancelled."""
    job = world.dispatcher.submit(replace(SPEC, indexes=(1, 2, 3, 4), at_once=2))
    assert await world.take() == ["ask 1.1-1", "ask 1.2-1"]
    world.dispatcher.place_task("1.1-1", "job-1", "n")
    world.dispatcher.end_attempt("1.1-1", {"at": 7.0, "stopped": "preempt"}, "n")
    assert "ask 1.3-1" not in await world.take()
    world.dispatcher.place_task("1.1-2", "job-1", "n")
    world.dispatcher.end_attempt("1.1-2", {"at": 8.0, "status": 0}, "n")
    assert "ask 1.3-1" in await world.take()
    assert [task.state for task in job.tasks.values()] == ["done", "queued", "queued", "held"]
    assert world.dispatcher.cancel(job, job.tasks.values()) == 3
    assert "ask 1.4-1" not in await world.take()


async def test_the_end_of_a_task_of_a_large_array_costs_little(world: World) -> None:
    """One that runs a few tasks at a time looks at each task once, also after a restart and when all are cancelled."""
    looked = 0

    class Counted(dict[int, Task]):
        def values(self) -> Any:
            nonlocal looked
            looked += 1
            return super().values()

    job = world.dispatcher.submit(replace(SPEC, indexes=tuple(range(1, 101)), at_once=2))
    job.tasks = Counted(job.tasks)
    await world.take()
    for number in range(1, 31):
        world.dispatcher.place_task(f"1.{number}-1", "job-1", "n")
        world.dispatcher.end_attempt(f"1.{number}-1", {"at": 8.0, "status": 0}, "n")
        assert f"ask 1.{number + 2}-1" in await world.take()
    world.dispatcher.cancel(job, [job.tasks[33]])
    assert "ask 1.33-1" not in await world.take()
    world.dispatcher.cancel(job, [job.tasks[32]])
    assert "ask 1.34-1" in await world.take()
    assert world.dispatcher.cancel(job, list(dict.values(job.tasks))) == 68
    await world.take()
    assert (looked, world.dispatcher.jobs) == (0, {})


async def test_a_held_job_starts_nothing_until_it_is_released(world: World, tmp_path: Path) -> None:
    """What was asked for is withdrawn, also what the core has just placed; what runs goes on, and is not repeated."""
    job = world.dispatcher.submit(replace(SPEC, indexes=(1, 2)))
    world.dispatcher.place_task("1.1-1", "job-1", "n")
    await world.take()
    assert world.dispatcher.hold(job)
    assert not world.dispatcher.hold(job)
    assert await world.take() == ["release 1.2-1 1"]
    world.dispatcher.place_task("1.2-1", "job-1", "n")
    assert await world.take() == ["release 1.2-1 1"]
    world.dispatcher.end_attempt("1.1-1", {"at": 7.0, "stopped": "preempt"}, "n")
    assert [said for said in await world.take() if said.startswith("ask")] == []
    assert [task.state for task in job.tasks.values()] == ["held", "held"]
    again = Dispatcher(world.store, world, world, lambda: 100.0)
    assert again.jobs[1].spec.on_hold
    assert [task.state for task in again.jobs[1].tasks.values()] == ["held", "held"]
    assert world.dispatcher.release(job)
    assert await world.take() == ["ask 1.1-2", "ask 1.2-2"]


async def test_a_job_that_waits_is_changed_in_its_place(world: World) -> None:
    """It is asked for again under its key, and the change outlives the server. What runs cannot be changed."""
    job = world.dispatcher.submit(SPEC)
    await world.take()
    assert world.dispatcher.change(job, {"priority": 7, "memory": 5})
    assert not world.dispatcher.change(job, {"priority": 7})
    assert await world.take() == ["ask 1-1"]
    assert (job.spec.priority, job.spec.memory, job.spec.queue) == (7, 5, "q")
    assert Dispatcher(world.store, world, world, lambda: 100.0).jobs[1].spec == job.spec
    with pytest.raises(BadSpec):
        world.dispatcher.change(job, {"vcore": 0, "memory": 0})
    world.dispatcher.place_task("1-1", "job-1", "n")
    with pytest.raises(Refused, match="job 1 runs"):
        world.dispatcher.change(job, {"priority": 1})
    world.dispatcher.end_attempt("1-1", {"at": 7.0, "status": 0}, "n")
    await world.take()
    for act in (world.dispatcher.hold, world.dispatcher.release):
        with pytest.raises(Refused, match="job 1 has ended"):
            act(job)


@pytest.mark.parametrize("value", [{"vcore": 5}, {"memory": 5}, {"gpu": 1.0}], ids=str)
async def test_tasks_that_start_together_keep_their_amounts(world: World, value: dict[str, float]) -> None:
    """The core was told what all of them need when the job was submitted."""
    job = world.dispatcher.submit(replace(SPEC, indexes=(0, 1), at_least=2))
    with pytest.raises(Refused, match="start together"):
        world.dispatcher.change(job, value)
    assert world.dispatcher.change(job, {"priority": 7})


async def test_a_job_can_wait_for_one_task_of_an_array(world: World) -> None:
    """It starts when that task is done, whatever the others do, and is cancelled when it has failed."""
    world.dispatcher.submit(replace(SPEC, indexes=(3, 4)))
    world.dispatcher.submit(replace(SPEC, after=("1.3",)))
    world.dispatcher.submit(replace(SPEC, after=("1.4",)))
    for key in ("1.3-1", "1.4-1"):
        world.dispatcher.place_task(key, "job-1", "n")
    await world.take()
    world.dispatcher.end_attempt("1.3-1", {"at": 7.0, "status": 0}, "n")
    assert "ask 2-1" in await world.take()
    again = Dispatcher(world.store, world, world, lambda: 100.0)
    again.end_attempt("1.4-1", {"at": 8.0, "status": 1}, "n")
    await world.take()
    assert again.find_job(3).tasks[-1].state is TaskState.CANCELLED
    with pytest.raises(Refused, match=r"job 1\.4, after which this one shall run, did not end well"):
        again.submit(replace(SPEC, after=("1.4",)))
    for unknown, said in (("1.9", r"job 1 has no task 1\.9"), (10**20, "is not a job")):
        with pytest.raises(Refused, match=said):
            again.submit(replace(SPEC, after=(unknown,)))


GROUP = replace(SPEC, indexes=(0, 1, 2), at_least=2)


async def run_group(world: World, spec: JobSpec = GROUP) -> Job:
    """Submits a group, all of whose tasks run."""
    job = world.dispatcher.submit(spec)
    for task in job.tasks.values():
        world.dispatcher.place_task(task.key, job.application_id, "n")
        world.dispatcher.start_task(task.key, 6.0)
    await world.take()
    return job


async def test_a_group_grows_and_shrinks(world: World) -> None:
    """The workers that wait go before those that run, and these are told before."""
    job = await run_group(world)
    world.dispatcher.scale_job(job, 5)
    assert await world.take() == ["ask 1.3-1", "ask 1.4-1"]
    world.dispatcher.scale_job(job, 2)
    assert sorted(await world.take()) == ["n: stop 1.2-1 cancel", "release 1.3-1 1", "release 1.4-1 1"]
    assert world.grace_s == 30.0
    world.dispatcher.scale_job(job, 2)
    assert await world.take() == []
    world.dispatcher.end_attempt("1.2-1", {"at": 7.0, "status": 0, "stopped": "cancel"}, "n")
    assert [task.state for _, task in sorted(job.tasks.items())] == ["running"] * 2 + ["cancelled"] * 3
    stored = world.store.load_job(1)
    assert stored is not None
    assert len(stored.tasks) == 5


async def test_a_group_that_has_ended_begins_anew(world: World) -> None:
    """Whether its end is stored already or not."""
    job = await run_group(world)
    world.dispatcher.scale_job(job, 0)
    for task in job.tasks.values():
        world.dispatcher.end_attempt(task.key, {"at": 7.0, "status": 0, "stopped": "cancel"}, "n")
    world.dispatcher.scale_job(world.dispatcher.find_job(1), 2)
    await world.take()
    assert world.dispatcher.jobs[1].count_open() == 2
    world.dispatcher.scale_job(world.dispatcher.find_job(1), 0)
    await world.take()
    assert not world.dispatcher.jobs
    world.dispatcher.scale_job(world.dispatcher.find_job(1), 2)
    assert await world.take() == ["ask 1.5-1", "ask 1.6-1"]
    assert world.dispatcher.jobs[1].count_open() == 2


async def test_a_group_keeps_what_it_promised(world: World) -> None:
    job = await run_group(world)
    with pytest.raises(Refused, match="at least 2 tasks, or none"):
        world.dispatcher.scale_job(job, 1)
    with pytest.raises(Refused, match="at least 2 tasks, or none"):
        world.dispatcher.scale_job(job, -1)
    with pytest.raises(Refused, match="too many tasks: 3 of at most 100000"):
        world.dispatcher.scale_job(job, 100_001)
    with pytest.raises(Refused, match="is no array"):
        world.dispatcher.scale_job(world.dispatcher.submit(SPEC), 2)
    waiting = world.dispatcher.submit(GROUP)
    with pytest.raises(Refused, match="start together"):
        world.dispatcher.change(waiting, {"vcore": 2000})
    with pytest.raises(BadSpec, match="never 4 tasks"):
        replace(GROUP, at_least=4).check()


async def test_the_core_hears_of_a_member_that_was_lost(world: World) -> None:
    """As lost, so that the gang is one short; not so of one that ended by itself or that the core had end."""
    await run_group(world)
    world.dispatcher.end_attempt("1.0-1", {"at": 7.0, "lost": "its supervisor was killed"}, "n")
    assert await world.take() == ["ask 1.0-2", "release 1.0-1 5", "release 1.0-1 1", "n: confirm 1.0-1"]
    world.dispatcher.end_attempt("1.1-1", {"at": 7.0, "status": 0}, "n")
    assert await world.take() == ["release 1.1-1 1", "n: confirm 1.1-1"]
    world.dispatcher.release_task("1.2-1", "job-1", PREEMPTED, "", wanted=True)
    world.dispatcher.end_attempt("1.2-1", {"at": 7.0, "lost": "killed", "stopped": "preempt"}, "n")
    assert [each for each in await world.take() if "release" in each] == ["release 1.2-1 3"]


async def test_the_notice_of_a_worker_outlives_the_server(world: World, tmp_path: Path) -> None:
    """The agent is asked again with the notice, not to end the worker at once."""
    job = await run_group(world)
    world.dispatcher.scale_job(job, 2)
    assert await world.take() == ["n: stop 1.2-1 cancel"]
    world.close()
    with closing(World(tmp_path)) as again:
        again.connect(**{"k1.0_1": None, "k1.1_1": None, "k1.2_1": None})
        assert [each for each in await again.take() if "stop" in each] == ["n: stop 1.2-1 cancel"]
        assert again.grace_s == 30.0
        again.dispatcher.scale_job(again.dispatcher.jobs[1], 3)
        assert await again.take() == ["ask 1.3-1"]
        again.dispatcher.end_attempt("1.2-1", {"at": 7.0, "lost": "killed"}, "n")
        assert again.dispatcher.jobs[1].tasks[2].state is TaskState.CANCELLED


async def test_who_cancels_does_not_wait_for_a_notice(world: World) -> None:
    """Neither for that of a worker that was one too many, nor for that of a victim, which then does not come back."""
    job = await run_group(world)
    world.dispatcher.scale_job(job, 2)
    world.dispatcher.release_task("1.0-1", "job-1", PREEMPTED, "", wanted=True)
    await world.take()
    assert world.dispatcher.cancel(job, job.tasks.values()) == 3
    assert sorted(await world.take()) == [f"n: stop 1.{index}-1 cancel" for index in range(3)]
    assert world.grace_s == 0.0
    assert world.dispatcher.cancel(job, job.tasks.values(), warned=True) == 0
    world.dispatcher.end_attempt("1.0-1", {"at": 7.0, "status": 0, "stopped": "preempt"}, "n")
    assert job.tasks[0].state is TaskState.CANCELLED


async def test_a_group_of_no_possible_size_costs_nothing(world: World) -> None:
    job = await run_group(world)
    with pytest.raises(Refused, match="too many tasks"):
        world.dispatcher.scale_job(job, 10**15)


async def test_a_group_that_grows_and_shrinks_for_weeks_stays_small(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgets the earliest workers that have ended, on the disk as well, but none of those it began with."""
    monkeypatch.setattr("kornel.shim_local.jobs.dispatcher.MOST_ENDED", 2)
    job = await run_group(world)
    for round_ in range(3):
        world.dispatcher.scale_job(job, 6)
        world.dispatcher.scale_job(job, 3)
        assert max(job.tasks) == 5 + 3 * round_
    await world.take()
    world.dispatcher.scale_job(job, 5)
    await world.take()
    stored = world.store.load_job(job.id)
    assert stored is not None
    assert sorted(stored.tasks) == sorted(job.tasks) == [0, 1, 2, 10, 11, 12, 13]


async def test_a_group_that_waits_in_vain_is_cancelled(world: World) -> None:
    """Because the job after which it should run has not ended well, which will not change."""
    before = world.dispatcher.submit(SPEC)
    group = world.dispatcher.submit(replace(GROUP, after=(before.id,)))
    world.dispatcher.cancel(before, before.tasks.values())
    await world.take()
    world.dispatcher.scale_job(world.dispatcher.find_job(group.id), 2)
    assert {task.state for task in world.dispatcher.find_job(group.id).tasks.values()} == {TaskState.CANCELLED}
