"""Lists made in turns: what they consist of, whole or compressed, and what is encoded before anybody asks."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator

import orjson
import pytest

from kornel.core.rest import warming
from kornel.core.rest.compression import PACKED_AT_ONCE
from kornel.core.rest.turns import encode_list, gather_items, gzip_chunks, write_list
from kornel.core.rest.warming import Warmer
from kornel.core.service.machine.loop_time import Sharing
from kornel.core.service.metrics.metrics import ServiceMetrics
from kornel.core.service.runner.runner import PartitionRunner
from kornel.core.telling.allocations.allocation_views import AllocationView
from kornel.core.telling.applications.application_views import ApplicationView
from kornel.core.telling.encoding.yunikorn import applications
from kornel.core.telling.reader import Reader
from tests.scenarios.stage import Stage

LINES = (
    "node n1", "app app1", "app app2", "ask k1", "ask k2 app=app2", "cycle", "ask big app=app2 vcore=900000", "cycle",
)  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 7, 60_000])
@pytest.mark.parametrize("compress", [False, True])
async def test_a_list_is_the_same_whole_and_compressed(count: int, compress: bool) -> None:
    documents = [{"number": number, "text": "x" * 90} for number in range(count)]
    body = await encode_list(documents, compress=compress)
    text = b"".join(body.chunks)
    assert body.encoded is (compress and count > 7), "a small one fits one packet anyway"
    text = gzip.decompress(text) if body.encoded else text
    assert text.endswith(b"]\n")
    assert orjson.loads(text) == documents


async def test_pieces_of_an_item_are_joined() -> None:
    body = await write_list(iter([iter([b'{"a":', b"1}"]), iter([b"2"])]))
    assert b"".join(body.chunks) == b'[{"a":1},2]\n'


@pytest.mark.parametrize("chunks", [[b"x" * 100_000, b"y"], [b"xyz" * PACKED_AT_ONCE], [b"x" * 1_399, b"y"]])
async def test_a_body_that_is_complete_is_compressed(chunks: list[bytes]) -> None:
    body = await gzip_chunks(chunks)
    assert body.encoded
    assert gzip.decompress(b"".join(body.chunks)) == b"".join(chunks)


async def test_a_small_body_is_left_as_it_is() -> None:
    body = await gzip_chunks([b"x" * 1_398, b"y"])
    assert (b"".join(body.chunks), body.encoded) == (b"x" * 1_398 + b"y", False)


async def test_places_to_pause_are_no_items() -> None:
    def items() -> Iterator[int | None]:
        yield None
        yield from (1, None, 2)

    assert await gather_items(items()) == [1, 2]


def test_the_head_of_an_application_is_made_once_while_nothing_changes() -> None:
    stage = Stage()
    stage.play(list(LINES))
    made: list[str] = []

    def render(view: ApplicationView) -> bytes:
        made.append(view.application_id)
        return applications.encode_head(view)

    reader = Reader(stage.engine, lambda: stage.now_ns)

    def told() -> list[dict[str, object]]:
        views = reader["[rm-1]default"]
        found = [
            orjson.loads(b"".join(applications.encode_parts(parts))) for parts in views.application_parts("", render)
        ]
        assert found == [
            orjson.loads(orjson.dumps(applications.write_application(view))) for view in views.applications()
        ]
        return found

    first = told()
    assert made == ["app1", "app2"]
    assert [len(document["allocations"]) for document in first] == [1, 1]  # type: ignore[arg-type]
    assert told() == first
    assert made == ["app1", "app2", "app2"], "what asks for something may change unseen"
    stage.play(["ask k3", "cycle"])
    assert told() != first
    assert made[3:] == ["app1", "app2"]


async def test_what_was_never_shown_is_encoded_while_the_engine_has_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = _Runner(list(LINES))
    made: list[str] = []

    def render(view: ApplicationView) -> bytes:
        made.append(view.application_id)
        return applications.encode_head(view)

    monkeypatch.setattr(warming, "encode_head", render)
    warmer = Warmer(runner)
    assert await warmer.encode() == len(["n1", "k1", "k2", "app1", "app2"])
    assert all(view.rendered for view in runner.allocations())
    assert made == ["app1"], "app2 asks for something and may change unseen"
    assert await warmer.encode() == 0, "nothing has happened since"
    runner.metrics.commands_applied += 1
    assert await warmer.encode() == 5
    assert made == ["app1"], "it has not changed"


async def test_encoding_is_interrupted_when_the_engine_works_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "STEP_S", 0.0)
    runner = _Runner(["node n1", "node n2", *LINES[1:]])
    warmer = Warmer(runner)
    sharing = Sharing.of_loop()
    work = asyncio.create_task(sharing.rest_after(0.0))
    assert await warmer.encode() == len(["n1", "k1"])
    assert [bool(view.rendered) for view in runner.allocations()] == [True, False]
    await work
    sharing.note_idle()
    assert await warmer.encode() == len(["n2", "k2", "app1", "app2"])
    assert all(view.rendered for view in runner.allocations())


async def test_encoding_rests_while_the_engine_has_little_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "STEP_S", 0.0)
    runner = _Runner(list(LINES))
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await pause(0)

    pause = asyncio.sleep
    monkeypatch.setattr("kornel.core.rest.warming.asyncio.sleep", sleep)
    asyncio.get_running_loop().call_soon(runner.work)
    assert await Warmer(runner).encode() == 5
    assert slept.count(warming.REST_S) == 1


async def test_nothing_is_encoded_while_the_engine_works() -> None:
    runner = _Runner(list(LINES))
    await Sharing.of_loop().rest_after(0.0)
    assert await Warmer(runner).encode() == 0
    assert not any(view.rendered for view in runner.allocations())


class _Runner(PartitionRunner):
    """One that does nothing but show what has become of *lines*."""

    def __init__(self, lines: list[str]) -> None:
        stage = Stage()
        stage.play(lines)
        self.reader = Reader(stage.engine, lambda: stage.now_ns)  # type: ignore[misc]
        self.turns_taken = 1
        self._metrics = self.metrics = ServiceMetrics(commands_applied=1)

    def allocations(self) -> list[AllocationView]:
        return [view for found in self.reader["[rm-1]default"].allocations() for view in found]

    def work(self) -> None:
        self.turns_taken += 1
