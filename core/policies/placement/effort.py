"""Bounds the effort of placing one application.

The owner of an application may have thousands of groups, and a configuration thousands of rules whose filters are asked
about each group. Nothing else has its turn meanwhile. So the effort is estimated in advance, from lengths and not with
a clock, because a replay has to come to the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

MOST_STEPS: Final = 2_000_000
"""The most steps for one application. A step takes up to 4 ns, and a hundred applications are handled in one go."""

STEPS_OF_RULE: Final = 1_000
"""The steps that a rule takes in any case."""

STEPS_OF_LOOKUP: Final = 15
"""The steps to look for one name in a list of names."""

STEPS_OF_SEARCH: Final = 400
"""The steps to begin the search of an expression in one name."""


class NameSizes(NamedTuple):
    """The sizes of the names of a user and its groups."""

    user_bytes: int
    groups: int
    group_bytes: int

    @classmethod
    def measure_names(cls, user: str, groups: Sequence[str]) -> NameSizes:
        """Returns the sizes of these names."""
        return cls(len(user.encode()), len(groups), sum(len(group.encode()) for group in groups))


class Effort(NamedTuple):
    """The steps that a rule takes at most: in any case, for each byte of the user's name, for each group, and for each
    byte of the groups' names."""

    steps: int
    user_bytes: int = 0
    groups: int = 0
    group_bytes: int = 0

    @property
    def depends_on_names(self) -> bool:
        """Tells whether the steps depend on the names."""
        return self[1:] != (0, 0, 0)

    def add_other(self, other: Effort) -> Effort:
        """Returns the effort of both together."""
        return Effort(*(one + two for one, two in zip(self, other, strict=True)))

    def count_steps(self, sizes: NameSizes) -> int:
        """Returns the steps for names of these *sizes*."""
        return (
            self.steps
            + self.user_bytes * sizes.user_bytes
            + self.groups * sizes.groups
            + self.group_bytes * sizes.group_bytes
        )
