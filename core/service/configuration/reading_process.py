"""Reads a large configuration, in a process of its own: a helper that :class:`.judging.ReadingProcess` starts.

Reading a text of some megabytes takes seconds, during which it would hold the interpreter's lock. The process gets a
text to be judged, or a :class:`PreviewRequest` and then the state of the partitions in pieces, up to ``None``, so that
their sender lets other threads work in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.model import Configuration
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text.problems import ConfigError, Problem
from kornel.core.service.machine.helpers import Core, lower_priority

if TYPE_CHECKING:
    from kornel.core.telling.configuration.configuration_preview import ConfigurationPreview
    from kornel.core.telling.configuration.partition_moment import PartitionMoment

MODULE: Final = "kornel.core.service.configuration.reading_process"
ROWS: Final = 200
"""The number of queues or applications in one piece, which takes a millisecond or two."""
_PARTS: Final = ("queues", "subjects", "holders")
_PARTS_OF_TASKS: Final = ("groups", "tasks")

Untried = Mapping[str, Sequence[str]]
"""The queues, by partition, without whose tasks a preview is not complete."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a valid text, with its checksum and warnings."""

    checksum: str
    warnings: tuple[Problem, ...]


class PreviewRequest(NamedTuple):
    """A request to try *text* on partitions that run under the text *in_force*."""

    in_force: str
    text: str
    rm_id: str


def judge_with(reader: ConfigurationReader, text: str) -> Judgement:
    """Returns the judgement of *text* by *reader*. Raises ConfigError."""
    return Judgement((configuration := reader.load(text)).checksum, configuration.warnings)


def try_on(preview: ConfigurationPreview, configuration: Configuration) -> bytes | Untried:
    """Returns what a configuration would change, encoded, or the queues whose tasks are needed as well. Encoding
    takes a while too, because thousands of queues may change."""
    # Imported here and below, because a text that is only judged needs none of it.
    from kornel.core.service.configuration.configuration_wire import impact_message  # noqa: PLC0415

    if preview.configuration is not None:
        configuration = share_equal_parts(configuration, preview.configuration)
    impact = preview.impact_of(configuration)
    return impact.untried or impact_message(impact, configuration.warnings).SerializeToString()


def request_messages(in_force: str, text: str, preview: ConfigurationPreview) -> Iterator[object]:
    """Yields the messages of a request to try *text* on *preview*, whose partitions run under the text *in_force*."""
    yield PreviewRequest(in_force, text, preview.rm_id)
    for moment in preview.moments.values():
        watched = moment.watched._replace(groups=(), tasks=())
        yield moment._replace(queues=(), subjects=(), holders=(), watched=watched)
        parts: list[tuple[str, Sequence[Any]]] = [(part, getattr(moment, part)) for part in _PARTS]
        parts += [(part, getattr(moment.watched, part)) for part in _PARTS_OF_TASKS]
        for part, rows in parts:
            for begin in range(0, len(rows), ROWS):
                yield moment.name, part, rows[begin : begin + ROWS]
    yield None


def answer_request(
    reader: ConfigurationReader, receive: Callable[[], Any], begin_work: Callable[[], None] = lambda: None
) -> Judgement | bytes | Untried:
    """Returns the answer to the request that *receive* begins with. Calls *begin_work* once all of it is received.
    Raises ConfigError."""
    request = receive()
    if not isinstance(request, PreviewRequest):
        begin_work()
        return judge_with(reader, request)
    from kornel.core.telling.configuration.configuration_preview import ConfigurationPreview  # noqa: PLC0415

    found = _receive_moments(receive)
    begin_work()
    return try_on(ConfigurationPreview(request.rm_id, reader.load(request.in_force), found), reader.load(request.text))


def _receive_moments(receive: Callable[[], Any]) -> dict[str, PartitionMoment]:
    moments: dict[str, PartitionMoment] = {}
    rows: dict[tuple[str, str], list[Any]] = {}
    while (found := receive()) is not None:
        if hasattr(found, "watched"):
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


def work_for_core(core: Core) -> None:
    """Answers one request."""
    lower_priority(10)
    reader = ConfigurationReader(core.receive())
    try:
        core.send(answer_request(reader, core.receive, core.watch))
    except ConfigError as error:
        core.send(error)
