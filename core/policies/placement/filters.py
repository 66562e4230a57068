"""Defines the filters of placement rules, which select the users that a rule serves (config.md 8.3). A filter is
compiled once for a configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kornel.core.domain.names import is_group_name, is_user_name, looks_like_regex
from kornel.core.domain.settings import FilterConfig
from kornel.core.policies.placement.effort import STEPS_OF_LOOKUP, STEPS_OF_SEARCH, Effort
from kornel.core.policies.placement.patterns import compile_pattern

Matcher = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Filter:
    """Admits the listed users and groups, or with ``deny`` everyone else. Users are checked first."""

    deny: bool
    user: Matcher
    group: Matcher
    empty: bool
    effort: Effort

    def admits(self, user: str, groups: Sequence[str]) -> bool:
        """Tells whether the rule serves the user. An empty filter admits everyone, or with ``deny`` no one."""
        listed = self.empty or self.user(user) or any(map(self.group, groups))
        return listed != self.deny


def compile_filter(config: FilterConfig) -> Filter:
    """Returns the filter that *config*, which is valid, describes. A single entry is a name or a regular expression. Of
    several entries, those that are not names are left out."""
    user, of_user, user_bytes = _compile_matcher(config.users, is_user_name)
    group, of_group, group_bytes = _compile_matcher(config.groups, is_group_name)
    effort = Effort(of_user, user_bytes, of_group, group_bytes)
    return Filter(config.deny, user, group, not config.users and not config.groups, effort)


def _compile_matcher(entries: tuple[str, ...], is_name: Callable[[str], bool]) -> tuple[Matcher, int, int]:
    """Returns a matcher for *entries*, and the steps that it takes for a name and for each byte of it."""
    if len(entries) == 1 and looks_like_regex(entries[0]):
        pattern = compile_pattern(entries[0])
        search = pattern.search
        return lambda name: search(name) is not None, STEPS_OF_SEARCH, pattern.programsize
    names = frozenset(entry for entry in entries if is_name(entry))
    return names.__contains__, STEPS_OF_LOOKUP if names else 0, 0
