"""Lists made in turns: what they consist of, whole or compressed."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import orjson
import pytest

from kornel.core.rest.http.compression import PACKED_AT_ONCE
from kornel.core.rest.serving.turns import encode_list, gather_items, gzip_chunks, write_list
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
