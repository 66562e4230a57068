"""A job as it was submitted: its command, its amounts, its queue and its conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

DEFAULT_GRACE_S: Final = 30.0
DEFAULT_KILL_S: Final = 10.0
DEFAULT_LOG_BYTES: Final = 64 * 2**20
LARGEST_PRIORITY: Final = 2**31 - 1
"""The largest priority that the wire can carry; the smallest is one below its negative."""
LARGEST_AMOUNT: Final = 2**62
MOST_GPUS: Final = 256
SMALLEST_PART: Final = 0.001
"""The smallest part of a GPU that can be asked for."""


class BadSpec(ValueError):
    """A submission with values that make no sense."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The values of a submission. *memory* and *log_bytes* are in bytes, *vcore* is in thousandths of a core."""

    command: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    user: str
    umask: int = 0o022
    name: str = ""
    queue: str = ""
    vcore: int = 1000
    memory: int = 0
    gpu: float = 0
    """The number of whole GPUs, or a part of one, below 1."""
    priority: int = 0
    indexes: tuple[int, ...] = ()
    """The indexes of an array; empty for a single task."""
    at_once: int = 0
    """The most tasks of an array that wait for room or run at a time; 0: any number."""
    at_least: int = 0
    """The number of tasks of an array below which the others are of no use: at first so many start together, or none
    does; 0 or 1: each starts by itself."""
    after: tuple[int | str, ...] = ()
    """The jobs, or single tasks such as ``19.3``, that have to succeed before this one starts."""
    after_any: tuple[int | str, ...] = ()
    """The jobs and tasks that have to end, in whatever way, before this one starts."""
    on_hold: bool = False
    """Tells whether somebody holds the job: none of its tasks that wait is started."""
    time_s: float = 0.0
    """The longest time that the job may run; 0: without limit."""
    grace_s: float = DEFAULT_GRACE_S
    """The time between SIGUSR1 and SIGTERM when the job is preempted."""
    kill_s: float = DEFAULT_KILL_S
    """The time between SIGTERM and SIGKILL, whenever the job is stopped."""
    log_bytes: int = DEFAULT_LOG_BYTES
    retries: int = 0
    """The number of times that a task is started again after its command has failed."""
    requeue: bool = True
    """Tells whether a task that was preempted, or lost with its machine, is started again."""
    preemptible: bool = True
    groups: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> JobSpec:
        """Returns the spec with *values*; unknown fields are ignored. Raises BadSpec."""
        known = {each.name for each in fields(cls)}
        try:
            taken = {name: value for name, value in values.items() if name in known}
            for name in ("command", "indexes", "after", "after_any", "groups"):
                if name in taken:
                    taken[name] = tuple(taken[name])
            spec = cls(**taken)
            spec.check()
        except BadSpec:
            raise
        except (TypeError, ValueError) as error:
            raise BadSpec(f"the submission cannot be understood: {error}") from None
        return spec

    def check(self) -> None:
        """Raise BadSpec if a value makes no sense."""
        if not self.command or not all(isinstance(word, str) for word in self.command):
            raise BadSpec("there is no command to run; write it behind --")
        amounts = (
            self.vcore,
            self.memory,
            self.gpu,
            self.time_s,
            self.grace_s,
            self.kill_s,
            self.log_bytes,
            self.retries,
            self.at_once,
            self.at_least,
        )
        if min(amounts) < 0:
            raise BadSpec("an amount is negative")
        if max(amounts) > LARGEST_AMOUNT:
            raise BadSpec("an amount is larger than can be counted")
        if self.at_least > min(len(self.indexes), self.at_once or self.at_least):
            raise BadSpec(f"there are never {self.at_least} tasks that could run together")
        if self.gpu > MOST_GPUS:
            raise BadSpec(f"no machine has more than {MOST_GPUS} GPUs")
        if self.gpu != int(self.gpu) and not SMALLEST_PART <= self.gpu < 1:
            raise BadSpec(f"{self.gpu:g} GPUs cannot be given: ask for whole ones, or for a part of one such as 0.5")
        if not -LARGEST_PRIORITY <= self.priority <= LARGEST_PRIORITY:
            raise BadSpec(f"the priority {self.priority} is out of range: it goes up to {LARGEST_PRIORITY}")
        for text in (self.queue, self.user, *self.groups):
            if not text.isprintable() or not _is_unicode(text):
                raise BadSpec(f"{text!r} cannot be the name of a queue, user or group")
        if not (self.vcore or self.memory or self.gpu >= 1):
            raise BadSpec("the job asks for nothing: give it --vcore, --memory or --gpu with whole GPUs")

    @property
    def is_gang(self) -> bool:
        """Tells whether several tasks have to run together."""
        return self.at_least > 1

    @property
    def predecessors(self) -> tuple[int | str, ...]:
        """The jobs and tasks that have to end before this one starts, well or in whatever way."""
        return self.after + self.after_any

    @property
    def shown_name(self) -> str:
        """The name of the job, or, if it has none, that of its program."""
        return self.name or self.command[0].rpartition("/")[2]

    @property
    def queue_path(self) -> str:
        """The full path of the queue."""
        return self.queue if self.queue.startswith("root.") else f"root.{self.queue}"


def _is_unicode(text: str) -> bool:
    """Tells whether *text* can be sent. A file name need not be valid UTF-8, and then it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
