"""Log lines: no secret in them, and no text of others that looks like a line or moves a cursor."""

from __future__ import annotations

import io
import json
from typing import Any

import jwt
import pytest

from kornel.core.security.static_tokens import new_token
from kornel.core.service.logs.logs import LogFormat, LogLevel, build_logger

SECRETS = {
    "static token": new_token(),
    "JWT": jwt.encode({"sub": "ann"}, "k" * 32, "HS256"),
    "unsigned JWT": jwt.encode({"sub": "ann"}, None, "none"),
    "bearer of another kind": "Bearer s3cret-value",
    "password in an address": "postgresql://kornel:s3cret-value@db/history",
    "password with odd signs in an address": "postgresql://kornel:s3cret-value/x@db/history",
    "private key": "-----BEGIN PRIVATE KEY-----\ns3cret-value\n-----END PRIVATE KEY-----",
    "private key cut off": "-----BEGIN EC PRIVATE KEY-----\ns3cret-value",
}


def logged(log_format: LogFormat, **values: Any) -> str:
    output = io.StringIO()
    build_logger(log_format, LogLevel.DEBUG, output).info("something happened", **values)
    return output.getvalue()


@pytest.mark.parametrize("log_format", LogFormat)
@pytest.mark.parametrize("kind", SECRETS)
def test_secrets_are_hidden_wherever_they_are(log_format: LogFormat, kind: str) -> None:
    secret = SECRETS[kind]
    wanted = secret if kind in ("static token", "JWT", "unsigned JWT") else "s3cret-value"
    for value in (secret, f"before {secret}", {"inside": [secret]}, (secret,), ValueError(secret)):
        assert wanted not in logged(log_format, said=value)
    try:
        raise ValueError(f"cannot use {secret}")
    except ValueError as error:
        line = logged(log_format, exc_info=error)
    assert wanted not in line


@pytest.mark.parametrize("key", ["token", "password", "client_secret", "Authorization", "private_key", "api-key"])
def test_secrets_are_hidden_by_their_name(key: str) -> None:
    assert "hunter2" not in logged(LogFormat.JSON, **{key: "hunter2"})
    assert "hunter2" not in logged(LogFormat.JSON, options={key: "hunter2"})


INJECTIONS = ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\x00b", "a\x85b", "a\u2028b", "a\u202eb", "a\x9bb", "a\ud800b"]


@pytest.mark.parametrize("log_format", LogFormat)
@pytest.mark.parametrize("text", INJECTIONS, ids=ascii)
def test_control_characters_are_written_out(log_format: LogFormat, text: str) -> None:
    for value in (text, [text], {text: text}, ValueError(text)):
        line = logged(log_format, rm_id=value)
        assert line.count("\n") == 1
        assert line.endswith("\n")
        assert not any(text[1:-1] in part for part in line.splitlines())
        assert len(line.splitlines()) == 1


@pytest.mark.parametrize("log_format", LogFormat)
def test_an_exception_cannot_write_a_line_of_its_own(log_format: LogFormat) -> None:
    """Traceback lines are indented, so that none begins like a line of the log."""
    try:
        raise ValueError("bad name\n2030-01-01T00:00:00Z [info     ] all is well")
    except ValueError as error:
        lines = logged(log_format, exc_info=error).splitlines()
    assert not any(line.startswith("2030") for line in lines)


def test_what_is_no_text_stays_what_it_is() -> None:
    line = json.loads(logged(LogFormat.JSON, count=3, share=0.5, on=True, nothing=None, names=["a", 1]))
    assert {name: line[name] for name in ("count", "share", "on", "nothing", "names")} == {
        "count": 3, "share": 0.5, "on": True, "nothing": None, "names": ["a", 1],
    }  # fmt: skip


def test_a_value_without_end_is_cut() -> None:
    assert len(logged(LogFormat.JSON, said="x" * 1_000_000)) < 20_000
