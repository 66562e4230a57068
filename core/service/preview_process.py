"""The process in which large configurations are tried: ``python -m kornel.core.service.preview_process``.

A request consists of the text in force, the text to be tried, and the state of the partitions in pieces, so that its
sender can do other work in between; an empty frame ends it. The answer is a refusal or the encoded response.
"""

from __future__ import annotations

import copyreg
import io
import json
import pickle
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.problems import ConfigError
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.service.configuration_wire import impact_message
from kornel.core.service.judge_process import add_length, begin_reading, read_frame, read_verdict, refusal_of
from kornel.core.telling.configuration.configuration_preview import ConfigurationPreview
from kornel.core.telling.configuration.partition_moment import PartitionMoment

MODULE: Final = "kornel.core.service.preview_process"
ROWS: Final = 200
"""The number of queues or applications in one piece, which takes a millisecond or two."""
_IMPACT: Final = b"i"
_REFUSAL: Final = b"r"
_PARTS: Final = ("queues", "subjects", "holders")


def request_frames(in_force: str, text: str, preview: ConfigurationPreview) -> Iterator[bytes]:
    """Yields the frames of a request to try *text* on *preview*, whose partitions run under the text *in_force*."""
    yield in_force.encode("utf-8", "surrogatepass")
    yield text.encode("utf-8", "surrogatepass")
    yield preview.rm_id.encode("utf-8", "surrogatepass")
    for moment in preview.moments.values():
        yield _pickle_value(moment._replace(queues=(), subjects=(), holders=()))
        for part in _PARTS:
            rows: Sequence[Any] = getattr(moment, part)
            for begin in range(0, len(rows), ROWS):
                yield _pickle_value((moment.name, part, rows[begin : begin + ROWS]))
    yield b""


def read_answer(answer: bytes) -> bytes:
    """Returns the encoded response. Raises ConfigError for a text that cannot be used."""
    if answer[:1] == _REFUSAL:
        raise ConfigError(read_verdict(answer[1:])[1])
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
    return {
        name: moment._replace(
            queues=rows.get((name, "queues"), ()),
            subjects=rows.get((name, "subjects"), ()),
            holders=rows.get((name, "holders"), ()),
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
