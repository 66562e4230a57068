"""What the files of one site are made of, for each test anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.security.site import Authority, Issuer, Pair


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server_pair(ca: Authority) -> Pair:
    return ca.issue("core", file="server")


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)
