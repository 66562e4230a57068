"""The levels of a partition's topology: the node attributes that name zones, racks and the like, outermost first."""

from __future__ import annotations

from typing import Final

from kornel.core.config.text.fields import Field
from kornel.core.config.text.yaml_reader import shorten_text
from kornel.core.domain.names import LONGEST_NAME
from kornel.core.domain.topology import TopologyLevel, name_level

MOST_TOPOLOGY_LEVELS: Final = 8
"""The most levels: more than data centres have, and few enough to update the sums of each with every placement."""


def read_topology(at: Field) -> tuple[TopologyLevel, ...]:
    """Returns the levels that a list of node attributes names; an attribute that cannot be a level is an error."""
    levels: list[TopologyLevel] = []
    seen: dict[str, int] = {}
    for attribute, found in at.texts():
        name = name_level(attribute)
        if found.unreadable:
            continue
        if not name.strip():
            found.error(f"{shorten_text(attribute)} names no level", "an attribute such as topology.kubernetes.io/zone")
        elif len(attribute) > LONGEST_NAME:
            found.error(f"an attribute has {len(attribute)} characters", f"at most {LONGEST_NAME}")
        elif name in seen:
            found.error(
                f"level {shorten_text(name)} is listed already, on line {seen[name]}",
                "levels that differ after the last slash",
            )
        elif len(levels) == MOST_TOPOLOGY_LEVELS:
            found.error("one level too many", f"at most {MOST_TOPOLOGY_LEVELS} levels")
        else:
            levels.append(TopologyLevel(name, attribute))
            seen[name] = found.line
    return tuple(levels)
