"""The process in which large configurations are tried: ``python -m kornel.core.service.configuration.preview_process``.

A request consists of the text in force, the text to be tried, and the state of the partitions in pieces, so that its
sender can do other work in between; an empty frame ends it. The answer is a refusal, the queues whose tasks are needed
as well, or the encoded response.
"""

from __future__ import annotations

import copyreg
import io
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text.problems import ConfigError
from kornel.core.service.configuration.configuration_wire import impact_message
from kornel.core.service.configuration.judge_process import (
    add_length,
    begin_reading,
    read_frame,
    read_verdict,
    refusal_of,
)
from kornel.core.telling.configuration.configuration_preview import ConfigurationPreview
from kornel.core.telling.configuration.partition_moment import PartitionMoment

MODULE: Final = "kornel.core.service.configuration.preview_process"
ROWS: Final = 200
"""The number of queues or applications in one piece, which takes a millisecond or two."""
_IMPACT: Final = b"i"
_REFUSAL: Final = b"r"
_UNTRIED: Final = b"u"
_PARTS: Final = ("queues", "subjects", "holders")
_PARTS_OF_TASKS: Final = ("groups", "tasks")

Untried = Mapping[str, Sequence[str]]
"""The queues, by partition, without whose tasks a preview is not complete."""


def request_frames(in_force: str, text: str, preview: ConfigurationPreview) -> Iterator[bytes]:
    """Yields the frames of a request to try *text* on *preview*, whose partitions run under the text *in_force*."""
    yield in_force.encode("utf-8", "surrogatepass")
    yield text.encode("utf-8", "surrogatepass")
    yield preview.rm_id.encode("utf-8", "surrogatepass")
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


def answer_request(reader: ConfigurationReader, in_force: str, source: BinaryIO) -> bytes:
    """Returns the answer to a request whose frames after *in_force* are read from *source*."""
    text, rm_id = _read_text(source), _read_text(source)
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


def _read_text(source: BinaryIO) -> str:
    return (read_frame(source) or b"").decode("utf-8", "surrogatepass")


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
    """Try configurations until the input ends."""
    source, sink = begin_reading()
    begun = read_frame(source)
    if begun is None:
        return
    reader = ConfigurationReader(json.loads(begun))
    while (raw := read_frame(source)) is not None:
        sink.write(add_length(answer_request(reader, raw.decode("utf-8", "surrogatepass"), source)))
        sink.flush()


if __name__ == "__main__":
    main()
