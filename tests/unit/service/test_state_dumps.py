"""What a shim says about its own state: shown as it is but for secrets, and refused before it costs much."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from kornel.core.domain.secrets import HIDDEN
from kornel.core.service.callbacks import state_dumps
from kornel.core.service.callbacks.state_dumps import (
    DEEPEST,
    LONGEST_DUMP,
    LONGEST_TEXT,
    MOST_VALUES,
    BadStateDump,
    read_dump,
    read_state_dump,
)


def test_it_is_shown_as_it_is() -> None:
    said = {
        "pods": [1.5, None, True, "a", [], {}, [{"x": "y"}]],
        "allocationKey": "k1",
        "node": {"token ring": 3},
        "": "",
    }
    assert read_dump(json.dumps(said)) == said


def test_secrets_are_hidden_at_any_depth() -> None:
    said = {
        "token": "hunter2",
        "list": ["https://bob:hunter2@host", {"dbPassword": "hunter2", "empty_password": ""}],
        "text": '{"password": "hunter2"}',
    }
    said["deep"] = json.loads('{"a":' * (DEEPEST - 2) + '{"secret": "hunter2"}' + "}" * (DEEPEST - 2))
    shown = read_dump(json.dumps(said))
    assert "hunter2" not in json.dumps(shown)
    assert shown["list"] == [f"https://{HIDDEN}@host", {"dbPassword": HIDDEN, "empty_password": ""}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (json.dumps({"a": "x" * LONGEST_DUMP}), "characters, at most"),
        ('{"a":[' + "[]," * MOST_VALUES + "[]]}", "more than 500,000 values"),
        ('{"a":[' + "{}," * (MOST_VALUES // 2) + "{}]}", "more than 500,000 values"),
        ('{"a":' * DEEPEST + "{}" + "}" * DEEPEST, None),
        ('{"a":' * DEEPEST + '{"b":1}' + "}" * DEEPEST, f"more than {DEEPEST} objects and lists within one another"),
        ('{"a":' * 600 + "1" + "}" * 600, f"more than {DEEPEST} objects and lists within one another"),
        ('{"a":' * 100_000, "not JSON"),
        ('{"share": NaN}', "not JSON"),
        ('{"share": 1e999}', "not JSON"),
        ("", "not JSON"),
        ("[1]", "not a JSON object but a list"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_a_reason(text: str, why: str | None) -> None:
    if why is None:
        assert read_dump(text)
        return
    with pytest.raises(BadStateDump, match=why):
        read_dump(text)


def test_one_long_text_is_left_out() -> None:
    """Whole: a part of it might end in the middle of a secret."""
    said = {"a": "x" * LONGEST_TEXT, "b": "://bob:hunter2" + "x" * LONGEST_TEXT, "c" * (LONGEST_TEXT + 1): "hunter2"}
    shown = read_dump(json.dumps(said))
    assert "hunter2" not in json.dumps(shown)
    assert list(shown) == list(said)
    assert shown["a"] == said["a"]
    assert shown["b"] == f"[{len(said['b']):,} characters, left out]"


async def test_a_reader_that_is_cancelled_ends_with_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that, its place is not free for another."""
    began, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def wait_and_read(text: str) -> dict[str, Any]:
        loop.call_soon_threadsafe(began.set)
        go_on.wait()
        return read_dump(text)

    class Answering:
        async def state_dump(self) -> str:
            return "{}"

    monkeypatch.setattr(state_dumps, "read_dump", wait_and_read)
    reading = asyncio.create_task(read_state_dump(Answering()))  # type: ignore[arg-type]
    await began.wait()
    reading.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reading.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
