"""Runs as a process that reads configurations: ``python -m kornel.core.service.configuration.reading_program``.

It reads which resolvers do not work here, and then one request after another, each of which gets an answer. Each frame
is preceded by eight bytes with its length. The end of the pipe means that the core has ended or asks no more.

A text that is only to be judged is a request by itself. A request to try a text begins with an empty frame; then come
the text in force, the text to be tried, and the state of the partitions in pieces, so that its sender can do other work
in between; another empty frame ends it. The answer is a refusal, the queues whose tasks are needed as well, or the
encoded response.
"""

from __future__ import annotations

import copyreg
import dataclasses
import io
import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text.problems import ConfigError, Problem, Severity
from kornel.core.service.configuration.configuration_wire import impact_message
from kornel.core.telling.configuration.configuration_preview import ConfigurationPreview
from kornel.core.telling.configuration.partition_moment import PartitionMoment

MODULE: Final = "kornel.core.service.configuration.reading_program"
LENGTH_BYTES: Final = 8
NICENESS: Final = 10
"""The niceness of the process, so that the engine gets the processor first."""

ROWS: Final = 200
"""The number of queues or applications in one piece, which takes a millisecond or two."""
_IMPACT: Final = b"i"
_REFUSAL: Final = b"r"
_UNTRIED: Final = b"u"
_PARTS: Final = ("queues", "subjects", "holders")
_PARTS_OF_TASKS: Final = ("groups", "tasks")

Untried = Mapping[str, Sequence[str]]
"""The queues, by partition, without whose tasks a preview is not complete."""


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


def request_frames(in_force: str, text: str, preview: ConfigurationPreview) -> Iterator[bytes]:
    """Yields the frames of a request to try *text* on *preview*, whose partitions run under the text *in_force*."""
    yield b""
    for each in (in_force, text, preview.rm_id):
        yield encode_text(each)
    for moment in preview.moments.values():
        watched = moment.watched._replace(groups=(), tasks=())
        yield _pickle_value(moment._replace(queues=(), subjects=(), holders=(), watched=watched))
        parts: list[tuple[str, Sequence[Any]]] = [(part, getattr(moment, part)) for part in _PARTS]
        parts += [(part, getattr(moment.watched, part)) for part in _PARTS_OF_TASKS]
        for part, rows in parts:
            for begin in range(0, len(rows), ROWS):
                yield _pickle_value((moment.name, part, rows[begin : begin + ROWS]))
    yield b""


def read_answer(answer: bytes) -> bytes | Untried:
    """Returns the encoded response, or the queues whose tasks are needed as well. Raises ConfigError for a text that
    cannot be used."""
    if answer[:1] == _REFUSAL:
        raise ConfigError(read_verdict(answer[1:])[1])
    if answer[:1] == _UNTRIED:
        untried: Untried = json.loads(answer[1:])
        return untried
    return answer[1:]


def answer_request(reader: ConfigurationReader, source: BinaryIO) -> bytes:
    """Returns the answer to a request to try a text, whose frames after the empty one are read from *source*."""
    in_force, text, rm_id = _read_text(source), _read_text(source), _read_text(source)
    moments = _read_moments(source)
    before = reader.load(in_force)
    try:
        configuration = share_equal_parts(reader.load(text), before)
    except ConfigError as error:
        return _REFUSAL + refusal_of(error)
    impact = ConfigurationPreview(rm_id, before, moments).impact_of(configuration)
    if impact.untried:
        return _UNTRIED + json.dumps(impact.untried).encode()
    return _IMPACT + impact_message(impact, configuration.warnings).SerializeToString()


def encode_text(text: str) -> bytes:
    """Returns *text* as a frame."""
    return text.encode("utf-8", "surrogatepass")


def _read_text(source: BinaryIO) -> str:
    return _decode_text(read_frame(source) or b"")


def _decode_text(frame: bytes) -> str:
    return frame.decode("utf-8", "surrogatepass")


def _read_moments(source: BinaryIO) -> dict[str, PartitionMoment]:
    moments: dict[str, PartitionMoment] = {}
    rows: dict[tuple[str, str], list[Any]] = {}
    while frame := read_frame(source):
        found = pickle.loads(frame)  # noqa: S301 - the core wrote it, into a pipe that nobody else has
        if isinstance(found, PartitionMoment):
            moments[found.name] = found
        else:
            name, part, some = found
            rows.setdefault((name, part), []).extend(some)

    def rows_of(name: str, parts: Sequence[str]) -> dict[str, Any]:
        return {part: rows.get((name, part), ()) for part in parts}

    return {
        name: moment._replace(
            **rows_of(name, _PARTS), watched=moment.watched._replace(**rows_of(name, _PARTS_OF_TASKS))
        )
        for name, moment in moments.items()
    }


def _pickle_value(value: object) -> bytes:
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = copyreg.dispatch_table | {MappingProxyType: _of_proxy}
    pickler.dump(value)
    return buffer.getvalue()


def _of_proxy(proxy: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return MappingProxyType, (dict(proxy),)


def main() -> None:
    """Reads configurations until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # An interrupt from the terminal is meant for the core.
    os.nice(NICENESS)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    begun = read_frame(source)
    if begun is None:
        return
    unavailable = json.loads(begun)
    reader = ConfigurationReader(unavailable)
    while (raw := read_frame(source)) is not None:
        # Each text to be judged has a reader of its own, because what a reader keeps of a large text is not needed.
        judged = verdict_of(ConfigurationReader(unavailable), _decode_text(raw)) if raw else None
        sink.write(add_length(answer_request(reader, source) if judged is None else judged))
        sink.flush()


if __name__ == "__main__":
    main()
