"""The registered resource manager."""

from __future__ import annotations

from typing import NamedTuple


class RegisteredManager(NamedTuple):
    """The registered resource manager, as it described itself."""

    rm_id: str
    version: str
    policy_group: str
    build_info: tuple[tuple[str, str], ...]
    registered_ns: int
