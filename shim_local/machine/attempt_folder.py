"""The folder of one attempt: its command, its progress, its log, and a pipe for commands to its supervisor.

The supervisor writes and the agent reads; either may be killed at any time. The record has its full size from the
beginning, so that a supervisor can write the end of the attempt even when the disk is full.

==============  ==========================================================================
``record``      begin (by the supervisor), start (of the process), end; then what to run,
                written by the agent before anything else
``control``     a named pipe with commands to the supervisor, made by it
``log``         what the process wrote
``preempt-at``  when SIGTERM follows, in Unix seconds; written just before SIGUSR1
==============  ==========================================================================
"""

from __future__ import annotations

import json
import os
from enum import Enum
from pathlib import Path
from typing import Any, Final

SLOT_BYTES: Final = 4096


class Slot(Enum):
    """The parts of the record, by their positions."""

    BEGIN = (0, 512)
    """The supervisor's process ID, its start time in the kernel's ticks, and the ID of the machine's boot."""
    START = (512, 1024)
    """The process ID of the command, and the time of its start."""
    END = (1024, SLOT_BYTES)
    """The end of the attempt: its status, and the reason for which it was stopped."""


class AttemptFolder:
    """The files of one attempt."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.key: Final = path.name
        self.record: Final = path / "record"
        self.control: Final = path / "control"
        self.log: Final = path / "log"
        self.preempt_at: Final = path / "preempt-at"

    def create(self, spec: dict[str, Any]) -> None:
        """Make the folder, and the record with *spec* and empty slots. Raises OSError."""
        # Only two entries of the file system are made, because each takes a millisecond on a busy disk.
        self.path.mkdir()
        self.record.write_bytes(b" " * SLOT_BYTES + json.dumps(spec).encode())

    def read_spec(self) -> dict[str, Any]:
        """Returns the spec of the attempt. Raises OSError or ValueError."""
        spec: dict[str, Any] = json.loads(self.record.read_bytes()[SLOT_BYTES:])
        return spec

    def write_slot(self, slot: Slot, values: dict[str, Any]) -> None:
        """Write one slot within the present size of the file."""
        first, end = slot.value
        text = json.dumps(values).encode()
        if len(text) >= end - first:
            shortened = {name: value[:200] if isinstance(value, str) else value for name, value in values.items()}
            text = json.dumps(shortened).encode()
        file = os.open(self.record, os.O_WRONLY)
        try:
            os.pwrite(file, text.ljust(end - first - 1) + b"\n", first)
        finally:
            os.close(file)

    def read_slot(self, slot: Slot) -> dict[str, Any] | None:
        """Returns the content of a slot, or ``None`` as long as nothing complete has been written into it.

        Raises OSError if the record exists but cannot be read; then nothing is known about the attempt.
        """
        first, end = slot.value
        try:
            with self.record.open("rb", buffering=0) as file:
                text = file.read(SLOT_BYTES)[first:end]
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not text.endswith(b"\n"):
            return None
        try:
            values: dict[str, Any] = json.loads(text)
        except ValueError:
            return None
        return values
