"""Static tokens: hashed in their file, and never quoted."""

from __future__ import annotations

import pytest

from kornel.core.config.text.problems import ConfigError
from kornel.core.security.static_tokens import digest_of, new_token, read_tokens
from kornel.core.service.machine.clock import SECOND_NS


def test_the_file_holds_no_token() -> None:
    token = new_token()
    text = f"tokens: [{{name: ci, sha256: {digest_of(token)}, groups: [robots]}}]"
    found = read_tokens(text)
    who = found.find_identity(token, 0)
    assert who is not None
    assert who.principals == ("token:ci", "token-group:robots")
    assert token not in text
    assert found.find_identity(digest_of(token), 0) is None
    assert found.find_identity(token + "x", 0) is None
    assert found.find_identity("", 0) is None


def test_a_token_ends_at_its_time() -> None:
    token = new_token()
    found = read_tokens(f"tokens: [{{name: ci, sha256: {digest_of(token)}, expires: '1970-01-01T00:01:00Z'}}]")
    assert found.find_identity(token, 59 * SECOND_NS) is not None
    assert found.find_identity(token, 60 * SECOND_NS) is None


def test_new_tokens_differ() -> None:
    assert len({new_token() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("name: a b, sha256: D", "'a b' is no name"),
        ("name: ci, sha256: SECRET", "no SHA-256 digest"),
        ("name: ci, sha256: D, expires: '2030-01-31'", "is no time"),
        ("name: ci, sha256: D, expires: '2030-01-31T00:00:00'", "is no time"),
        ("name: ci, sha256: D, password: x", "unknown key 'password'"),
    ],
)
def test_mistakes_are_located_and_quote_no_secret(entry: str, said: str) -> None:
    """Somebody may have written the token where its digest belongs."""
    secret = new_token()
    text = f"tokens:\n  - {{{entry.replace('SECRET', secret).replace('D', '0' * 64)}}}\n"
    with pytest.raises(ConfigError) as refused:
        read_tokens(text)
    assert said in str(refused.value)
    assert "line 2" in str(refused.value)
    assert secret not in str(refused.value)


def test_a_name_is_given_once() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        read_tokens(f"tokens: [{{name: a, sha256: {'0' * 64}}}, {{name: a, sha256: {'1' * 64}}}]")
