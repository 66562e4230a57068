"""What a shim says about its own state: shown as it is but for secrets, and refused before it costs much."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kornel.core.domain.secrets import HIDDEN
from kornel.core.service.state_dumps import DEEPEST, LONGEST_DUMP, MOST_VALUES, BadStateDump, read_dump


def read(text: str) -> dict[str, Any]:
    return asyncio.run(read_dump(text))


def test_it_is_shown_as_it_is() -> None:
    said = {
        "pods": [1.5, None, True, "a", [], {}, [{"x": "y"}]],
        "allocationKey": "k1",
        "node": {"token ring": 3},
        "": "",
    }
    assert read(json.dumps(said)) == said


def test_secrets_are_hidden_at_any_depth() -> None:
    said = {
        "token": "hunter2",
        "list": ["https://bob:hunter2@host", {"dbPassword": "hunter2", "empty_password": ""}],
        "text": '{"password": "hunter2"}',
    }
    said["deep"] = json.loads('{"a":' * (DEEPEST - 2) + '{"secret": "hunter2"}' + "}" * (DEEPEST - 2))
    shown = read(json.dumps(said))
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
        assert read(text)
        return
    with pytest.raises(BadStateDump, match=why):
        read(text)
