"""Origins as they may be given."""

from __future__ import annotations

import pytest

from kornel.core.rest.http.browser_rules import BadOrigin, checked_origins


def test_good_ones() -> None:
    assert checked_origins(["http://Localhost:9889/", "https://a.example", "*"]) == {
        "http://localhost:9889",
        "https://a.example",
        "*",
    }


@pytest.mark.parametrize(
    "origin", ["", "localhost:9889", "ftp://a", "http://", "http://a/path", "http://a:x", "http://a?b", "null"]
)
def test_bad_ones(origin: str) -> None:
    with pytest.raises(BadOrigin):
        checked_origins([origin])
