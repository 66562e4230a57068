"""Defines the samples of the use of queues, which the history keeps."""

from __future__ import annotations

from typing import NamedTuple


class UsageSample(NamedTuple):
    """The use of a queue at one time. Amounts are JSON objects, as the table has them."""

    at_ns: int
    partition: str
    queue: str
    applications: int
    used: str
    pending: str
    guaranteed: str
    max: str
