"""Reads large configurations in a process of their own, a helper that is started for each.

Reading a text of some megabytes takes seconds, during which it would hold the interpreter's lock. The process gets a
text to be judged, or a :class:`PreviewRequest` and then the state of the partitions in pieces, up to ``None``, so that
their sender lets other threads work in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.model import Configuration
from kornel.core.config.rereading import ConfigurationReader
from kornel.core.config.text.problems import ConfigError, Problem
from kornel.core.service.configuration.configuration_wire import impact_message
from kornel.core.service.machine.helpers import Core, Helper, HelperEnded, lower_priority
from kornel.core.service.wire.status_codes import TooMany
from kornel.core.telling.configuration.configuration_preview import ConfigurationPreview
from kornel.core.telling.configuration.partition_moment import PartitionMoment

MODULE: Final = "kornel.core.service.configuration.reading_process"
NICE: Final = 10
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


class ReadingProcess:
    """Has requests answered by processes, one after the other. *unavailable_resolvers*: types of resolver that do not
    work here, with the reason."""

    def __init__(self, unavailable_resolvers: Mapping[str, str], *, logger: FilteringBoundLogger) -> None:
        self._unavailable_resolvers = dict(unavailable_resolvers)
        self._logger = logger
        self._one = asyncio.Lock()
        self._closed = False
        self.helper: Helper | None = None
        """The process that was started last."""

    async def ask(self, messages: Iterable[object]) -> Any:
        """Returns the answer to a request made of *messages*, in its turn.

        Raises ConfigError, or :class:`TooMany` if the process has ended.
        """
        async with self._one:
            helper = self.helper = Helper(MODULE, self._unavailable_resolvers)
            if self._closed:
                helper.kill_process()
            asking = asyncio.ensure_future(asyncio.to_thread(_ask_helper, helper, messages))
            try:
                answer = await asyncio.shield(asking)
            except (HelperEnded, OSError) as error:
                if not self._closed:
                    self._logger.error("the process that reads configurations has ended", cause=str(error))
                raise TooMany("the process that reads configurations has ended; try again") from error
            finally:
                helper.kill_process()
                await asyncio.gather(asking, return_exceptions=True)
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    async def close(self) -> None:
        """Accept no more requests, and drop the one that is being answered."""
        self._closed = True
        if self.helper is not None:
            self.helper.kill_process()
        async with self._one:
            pass


def _ask_helper(helper: Helper, messages: Iterable[object]) -> Any:
    with helper:
        helper.send(messages)
        return helper.receive()


def judge_with(reader: ConfigurationReader, text: str) -> Judgement:
    """Returns the judgement of *text* by *reader*. Raises ConfigError."""
    configuration = reader.load(text)
    return Judgement(configuration.checksum, configuration.warnings)


def try_on(preview: ConfigurationPreview, configuration: Configuration) -> bytes | Untried:
    """Returns what a configuration would change, encoded, or the queues whose tasks are needed as well. Encoding
    takes a while too, because thousands of queues may change."""
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


def answer_request(reader: ConfigurationReader, receive: Callable[[], Any]) -> Judgement | bytes | Untried:
    """Returns the answer to the request that *receive* begins with. Raises ConfigError."""
    request = receive()
    if not isinstance(request, PreviewRequest):
        return judge_with(reader, request)
    moments = _receive_moments(receive)
    preview = ConfigurationPreview(request.rm_id, reader.load(request.in_force), moments)
    return try_on(preview, reader.load(request.text))


def _receive_moments(receive: Callable[[], Any]) -> dict[str, PartitionMoment]:
    moments: dict[str, PartitionMoment] = {}
    rows: dict[tuple[str, str], list[Any]] = {}
    while (found := receive()) is not None:
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


def work_for_core(core: Core) -> None:
    """Answers one request."""
    lower_priority(NICE)
    reader = ConfigurationReader(core.receive())
    try:
        core.send(answer_request(reader, core.receive))
    except ConfigError as error:
        core.send(error)
