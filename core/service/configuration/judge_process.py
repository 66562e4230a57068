"""Runs as a process that validates configurations: ``python -m kornel.core.service.configuration.judge_process``.

It reads which resolvers do not work here, and then one text after another, each of which gets a verdict. Each frame is
preceded by eight bytes with its length. The end of the pipe means that the core has ended or needs no more verdicts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from typing import BinaryIO, Final

from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text.problems import ConfigError, Problem, Severity

MODULE: Final = "kornel.core.service.configuration.judge_process"
LENGTH_BYTES: Final = 8
NICENESS: Final = 10
"""The niceness of the process, so that the engine gets the processor first."""


def add_length(data: bytes) -> bytes:
    """Returns *data* with its length before it."""
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def verdict_of(reader: ConfigurationReader, text: str) -> bytes:
    """Returns the judgement of *text* by *reader*: the checksum, empty if it cannot be used, and the problems."""
    try:
        configuration = reader.load(text)
    except ConfigError as error:
        return refusal_of(error)
    return _encode_verdict(configuration.checksum, configuration.warnings)


def refusal_of(error: ConfigError) -> bytes:
    """Returns the judgement of a text that cannot be used."""
    return _encode_verdict("", error.problems)


def read_verdict(verdict: bytes) -> tuple[str, tuple[Problem, ...]]:
    """Returns the checksum and the problems in *verdict*."""
    checksum, problems = json.loads(verdict)
    return checksum, tuple(Problem(Severity(severity), *rest) for severity, *rest in problems)


def _encode_verdict(checksum: str, problems: tuple[Problem, ...]) -> bytes:
    rows = [[getattr(problem, field.name) for field in dataclasses.fields(Problem)] for problem in problems]
    return json.dumps([checksum, rows]).encode()


def read_frame(source: BinaryIO) -> bytes | None:
    """Returns the next frame; ``None``: the pipe has ended."""
    head = source.read(LENGTH_BYTES)
    return source.read(int.from_bytes(head, "big")) if len(head) == LENGTH_BYTES else None


def begin_reading() -> tuple[BinaryIO, BinaryIO]:
    """Prepares this process to read for the core. Returns the pipes for requests and answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # An interrupt from the terminal is meant for the core.
    os.nice(NICENESS)
    return sys.stdin.buffer, sys.stdout.buffer


def main() -> None:
    """Validates texts until the pipe ends."""
    source, sink = begin_reading()
    begun = read_frame(source)
    if begun is None:
        return
    unavailable = json.loads(begun)
    while (raw := read_frame(source)) is not None:
        # Each text has a separate reader, because the parts of a large text that a reader keeps are not needed.
        sink.write(add_length(verdict_of(ConfigurationReader(unavailable), raw.decode("utf-8", "surrogatepass"))))
        sink.flush()


if __name__ == "__main__":
    main()
