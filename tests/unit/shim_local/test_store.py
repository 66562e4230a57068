"""The store of jobs: what is written is there again, and what cannot be written changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kornel.shim_local.jobs.spec import BadSpec, JobSpec
from kornel.shim_local.jobs.store import JobStore, StoreUnusable, StoreUnwritable
from kornel.shim_local.jobs.task import SINGLE, TaskState

SPEC = JobSpec(("sleep", "1"), "/tmp", {"A": "b\n"}, "me", indexes=(1, 2), after=(7,), memory=5)  # noqa: S108


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    """An empty store."""
    with closing(JobStore(tmp_path / "jobs.db")) as opened:
        yield opened


def fill_disk(store: JobStore) -> None:
    """Has the database believe that its file cannot grow any more."""
    (pages,) = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count = {pages}")


def test_jobs_are_remembered(tmp_path: Path) -> None:
    """With their tasks, through another opening of the file."""
    with closing(JobStore(tmp_path / "jobs.db")) as store:
        job = store.add_job(SPEC, 12.5, TaskState.QUEUED, SPEC.indexes)
        task = job.tasks[2]
        task.state, task.node, task.stopping, task.attempt, task.started_s = TaskState.RUNNING, "n", "cancel", 3, 4.5
        store.save_changes([task])
        store.save_node("n", {"boot": "x"})
    with closing(JobStore(tmp_path / "jobs.db")) as store:
        assert store.load_live() == {job.id: job}
        assert store.load_job(job.id) == job
        assert store.load_nodes() == {"n": {"boot": "x"}}
    assert job.tasks[2].key == f"{job.id}.2-3"


def test_numbers_are_not_used_twice(store: JobStore) -> None:
    """Somebody may still ask for a job that was removed."""
    first = store.add_job(SPEC, 1.0, TaskState.QUEUED, (1,))
    first.tasks[1].state, first.tasks[1].ended_s = TaskState.DONE, 2.0
    store.save_changes(first.tasks.values())
    assert store.load_live() == {}
    assert list(store.load_recent(5)) == [first.id]
    assert store.remove_ended(1.5) == 0
    assert store.remove_ended(3.0) == 1
    assert store.load_job(first.id) is None
    assert store.add_job(SPEC, 5.0, TaskState.QUEUED, (1,)).id == first.id + 1
    assert store.remove_ended(10.0) == 0


def test_a_file_of_the_first_version_is_read(tmp_path: Path) -> None:
    """Its tasks have no GPUs, and get some from then on."""
    with closing(JobStore(tmp_path / "jobs.db")) as store:
        number = store.add_job(JobSpec(("true",), "/", {}, "u"), 1.0, TaskState.RUNNING, (SINGLE,)).id
    with sqlite3.connect(tmp_path / "jobs.db") as database:
        database.execute("ALTER TABLE tasks DROP COLUMN gpus")
        database.execute("ALTER TABLE tasks DROP COLUMN losses")
        database.execute("PRAGMA user_version = 1")
    database.close()
    with closing(JobStore(tmp_path / "jobs.db")) as store:
        task = store.load_live()[number].tasks[SINGLE]
        assert task.gpus == ()
        task.gpus = ("0", "3")
        store.save_changes([task])
    with closing(JobStore(tmp_path / "jobs.db")) as store:
        assert store.load_live()[number].tasks[SINGLE].gpus == ("0", "3")


def test_a_full_disk_changes_nothing(store: JobStore) -> None:
    """A submission fails as a whole, and so do changes; with space again both work."""
    job = store.add_job(SPEC, 1.0, TaskState.QUEUED, (1,))
    fill_disk(store)
    large = JobSpec(("x" * 100_000,), "/", {}, "me")
    with pytest.raises(StoreUnwritable, match=r"cannot be written: database or disk is full"):
        store.add_job(large, 1.0, TaskState.QUEUED, (1,))
    job.tasks[1].reason = "y" * 100_000
    with pytest.raises(StoreUnwritable):
        store.save_changes(job.tasks.values())
    assert len(store.load_live()) == 1
    loaded = store.load_job(job.id)
    assert loaded is not None
    assert loaded.tasks[1].reason == ""
    store._database.execute("PRAGMA max_page_count = 100000")
    store.save_changes(job.tasks.values())
    assert store.load_job(job.id) == job


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_text("this is no database, and has more than a few bytes to say so" * 20)
    with pytest.raises(StoreUnusable, match=r"jobs\.db: cannot be used"):
        JobStore(path)
    path.unlink()
    JobStore(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreUnusable, match="written by a newer version"):
        JobStore(path)


def test_specs_are_read_from_json() -> None:
    """Unknown fields are left out; nonsense is refused."""
    assert JobSpec.from_json({**SPEC.to_json(), "new": 1}) == SPEC
    for change in ({"command": []}, {"vcore": -1}, {"vcore": 0, "memory": 0}, {"command": [1]}, {"vcore": "x"}):
        with pytest.raises(BadSpec):
            JobSpec.from_json({**SPEC.to_json(), **change})
    with pytest.raises(BadSpec):
        JobSpec.from_json({})
