"""Reads from the tags of asks where in the topology of the partition their task groups are to run.

A level is a node attribute that the configuration lists under ``topology``, such as a zone or a rack. Its name is the
text after the last slash of the attribute. Rules: docs/topology.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

REQUIRED_TAG: Final = "kornel.topology.required"
PREFERRED_TAG: Final = "kornel.topology.preferred"
SPREAD_TAG: Final = "kornel.topology.spread"
SLICE_SIZE_TAG: Final = "kornel.topology.sliceSize"

LARGEST_SLICE: Final = 1_000_000

_COUNT: Final = re.compile(r"[1-9][0-9]{0,6}", re.ASCII)


class Wish(StrEnum):
    """The ways in which a group may ask for its members to be placed in the topology."""

    REQUIRED = "required"
    """Each slice runs in one domain of the level, or waits."""
    PREFERRED = "preferred"
    """The members run in as few domains of the level as they can, and do not wait for that."""
    SPREAD = "spread"
    """Slices go to the domains of the level in turn, as far as these have room."""


class TopologyLevel(NamedTuple):
    """One level of a topology: its name, and the node attribute that says to which domain a node belongs."""

    name: str
    attribute: str


class TopologyRequest(NamedTuple):
    """The place in the topology that an ask requests for its task group. With ``slice_size`` 0, all members are one
    slice if the wish is ``required``; otherwise each member is a slice by itself.

    ``flaw`` says why the tags make no sense; the ask is refused then.
    """

    wish: Wish
    level: str
    slice_size: int = 0
    flaw: str = ""

    def describe_request(self) -> str:
        """Returns the request in words: ``required: rack, in slices of 4``."""
        size = f", in slices of {self.slice_size}" if self.slice_size else ""
        return f"{self.wish}: {self.level}{size}"


_WISHES: Final = {REQUIRED_TAG: Wish.REQUIRED, PREFERRED_TAG: Wish.PREFERRED, SPREAD_TAG: Wish.SPREAD}
TOPOLOGY_TAGS: Final = frozenset({*_WISHES, SLICE_SIZE_TAG})


def name_level(attribute: str) -> str:
    """Returns the name of the level of *attribute*: ``zone`` for ``topology.kubernetes.io/zone``."""
    return attribute.rpartition("/")[2]


def read_request(tags: Iterable[tuple[str, str]]) -> TopologyRequest | None:
    """Returns the request about the topology in *tags*, or ``None`` if there is none."""
    said = {key: value for key, value in tags if key in TOPOLOGY_TAGS}
    wishes = [(_WISHES[key], value) for key, value in said.items() if key in _WISHES]
    if not said:
        return None
    size = said.get(SLICE_SIZE_TAG, "")
    if len(wishes) != 1:
        flaw = "one of required, preferred and spread has to be given" if wishes else f"{SLICE_SIZE_TAG} names no level"
        return TopologyRequest(Wish.REQUIRED, "", flaw=flaw)
    wish, level = wishes[0]
    if size and (not _COUNT.fullmatch(size) or int(size) > LARGEST_SLICE):
        flaw = f"{SLICE_SIZE_TAG} is {size[:20]!r}, not 1 to {LARGEST_SLICE:,}"
        return TopologyRequest(wish, level, flaw=flaw)
    return TopologyRequest(wish, level, int(size) if size else 0)
