"""The store of jobs: an SQLite file in which a change is stored before anything happens that depends on it.

Every change goes through :meth:`JobStore.save_changes` in one transaction, which is on the disk when it returns.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from kornel.shim_local.jobs.spec import JobSpec
from kornel.shim_local.jobs.task import Job, Task, TaskState

VERSION: Final = 3
_TABLES: Final = """
CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, submitted_s REAL NOT NULL, spec TEXT NOT NULL);
CREATE TABLE tasks (
    job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE, idx INTEGER NOT NULL, state TEXT NOT NULL,
    attempt INTEGER NOT NULL, node TEXT NOT NULL, started_s REAL NOT NULL, ended_s REAL NOT NULL, status INTEGER,
    reason TEXT NOT NULL, stopping TEXT NOT NULL, failures INTEGER NOT NULL, preemptions INTEGER NOT NULL,
    gpus TEXT NOT NULL DEFAULT '', losses INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, idx)
) WITHOUT ROWID;
CREATE INDEX live ON tasks (job) WHERE state IN ('held', 'queued', 'running');
CREATE TABLE nodes (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
"""
_STEPS: Final = (
    "ALTER TABLE tasks ADD COLUMN gpus TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE tasks ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;",
)
"""The changes from each version of the file to the next, version 1 first."""
_SAVE_TASK: Final = "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LIVE: Final = "SELECT DISTINCT job FROM tasks WHERE state IN ('held', 'queued', 'running')"


class StoreUnusable(Exception):
    """The file is not a store of jobs that this version can read."""


class StoreUnwritable(Exception):
    """The store could not be written, for instance because the disk is full. Its content is unchanged."""


class JobStore:
    """The jobs on the disk. Only one process has the store open at a time."""

    def __init__(self, path: Path) -> None:
        """Opens the store at *path*, or makes one. Raises StoreUnusable."""
        self.path: Final = path
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            try:
                self._prepare_file()
            except BaseException:
                self._database.close()
                raise
        except sqlite3.Error as error:
            raise StoreUnusable(f"{path}: cannot be used as a store of jobs: {error}") from None

    def _prepare_file(self) -> None:
        self._database.execute("PRAGMA journal_mode = WAL")
        # A stored start must survive a power failure, because otherwise the job would run a second time.
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("PRAGMA foreign_keys = ON")
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise StoreUnusable(f"{self.path}: was written by a newer version (format {version}, known is {VERSION})")
        if version == 0:
            self._database.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        elif version < VERSION:
            steps = "".join(_STEPS[version - 1 :])
            self._database.executescript(f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {VERSION}; COMMIT;")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add_job(self, spec: JobSpec, submitted_s: float, state: TaskState, indexes: Sequence[int]) -> Job:
        """Stores a new job with one task per index, all in *state*, and returns it. Raises StoreUnwritable."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            cursor = self._database.execute(
                "INSERT INTO jobs (submitted_s, spec) VALUES (?, ?)", (submitted_s, json.dumps(spec.to_json()))
            )
            assert cursor.lastrowid is not None
            job = Job(cursor.lastrowid, spec, submitted_s)
            job.tasks = {index: Task(job.id, index, state) for index in indexes}
            self._database.executemany(_SAVE_TASK, map(_to_row, job.tasks.values()))
            self._commit()
        except sqlite3.Error as error:
            raise self._give_up(error) from None
        return job

    def save_spec(self, job: Job) -> None:
        """Store the present values of a job. Raises StoreUnwritable."""
        try:
            self._database.execute("UPDATE jobs SET spec = ? WHERE id = ?", (json.dumps(job.spec.to_json()), job.id))
        except sqlite3.Error as error:
            raise self._give_up(error) from None

    def save_changes(self, tasks: Iterable[Task], dropped: Iterable[Task] = ()) -> None:
        """Store the present state of *tasks*, and remove those *dropped*, all or none. Raises StoreUnwritable."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(_SAVE_TASK, map(_to_row, tasks))
            self._database.executemany(
                "DELETE FROM tasks WHERE job = ? AND idx = ?", [(task.job, task.index) for task in dropped]
            )
            self._commit()
        except sqlite3.Error as error:
            raise self._give_up(error) from None

    def save_node(self, name: str, record: dict[str, Any]) -> None:
        """Store the record of a machine. Raises StoreUnwritable."""
        try:
            self._database.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?)", (name, json.dumps(record)))
        except sqlite3.Error as error:
            raise self._give_up(error) from None

    def remove_node(self, name: str) -> None:
        """Remove a machine. Raises StoreUnwritable."""
        try:
            self._database.execute("DELETE FROM nodes WHERE name = ?", (name,))
        except sqlite3.Error as error:
            raise self._give_up(error) from None

    def load_nodes(self) -> dict[str, dict[str, Any]]:
        """Returns the records of all machines, by name."""
        rows = self._database.execute("SELECT name, record FROM nodes")
        return {name: json.loads(record) for name, record in rows}

    def load_live(self) -> dict[int, Job]:
        """Returns the jobs with a task that has not ended, by ID."""
        return self._load(f"id IN ({_LIVE})", ())

    def load_job(self, job: int) -> Job | None:
        """Returns one job, or ``None`` if there is none with this ID."""
        return self._load("id = ?", (job,)).get(job)

    def load_recent(self, most: int) -> dict[int, Job]:
        """Returns the latest jobs, at most *most* of them, by ID."""
        return self._load("id IN (SELECT id FROM jobs ORDER BY id DESC LIMIT ?)", (most,))

    def remove_ended(self, before_s: float) -> int:
        """Remove jobs that ended before *before_s*. Returns their number. Raises StoreUnwritable."""
        try:
            cursor = self._database.execute(
                f"DELETE FROM jobs WHERE submitted_s < ? AND id NOT IN ({_LIVE})"  # noqa: S608 - a constant
                " AND NOT EXISTS (SELECT 1 FROM tasks WHERE job = id AND ended_s >= ?)",
                (before_s, before_s),
            )
        except sqlite3.Error as error:
            raise self._give_up(error) from None
        return cursor.rowcount

    def _load(self, condition: str, values: tuple[object, ...]) -> dict[int, Job]:
        """Returns the jobs for which *condition*, one of the constants above, is true."""
        jobs = {
            number: Job(number, JobSpec.from_json(json.loads(spec)), submitted_s)
            for number, submitted_s, spec in self._database.execute(
                f"SELECT id, submitted_s, spec FROM jobs WHERE {condition} ORDER BY id",  # noqa: S608
                values,
            )
        }
        rows = self._database.execute(
            f"SELECT * FROM tasks WHERE job IN (SELECT id FROM jobs WHERE {condition})",  # noqa: S608
            values,
        )
        for row in rows:
            task = _from_row(row)
            jobs[task.job].tasks[task.index] = task
        return jobs

    def _commit(self) -> None:
        """End the transaction. A full disk causes an error here, if not earlier."""
        self._database.execute("COMMIT")

    def _give_up(self, error: sqlite3.Error) -> StoreUnwritable:
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")
        return StoreUnwritable(f"the store of jobs at {self.path} cannot be written: {error}")


def _to_row(task: Task) -> tuple[object, ...]:
    return (
        task.job, task.index, str(task.state), task.attempt, task.node, task.started_s, task.ended_s, task.status,
        task.reason, task.stopping, task.failures, task.preemptions, ",".join(task.gpus), task.losses,
    )  # fmt: skip


def _from_row(row: tuple[Any, ...]) -> Task:
    job, index, state, *others, gpus, losses = row
    task = Task(job, index, TaskState(state), *others)
    task.losses = losses
    task.gpus = tuple(filter(None, gpus.split(",")))
    return task
