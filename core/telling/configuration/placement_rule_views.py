"""Shows the placement rules in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kornel.core.domain.names import RECOVERY_PATH, looks_like_regex
from kornel.core.domain.settings import FilterConfig, PlacementRuleConfig
from kornel.core.policies.placement.queue_paths import is_qualified
from kornel.core.state.partition_state import PartitionState


class FilterView(NamedTuple):
    """The users and groups that a placement rule serves: listed names, or a regular expression for either."""

    deny: bool
    users: tuple[str, ...]
    groups: tuple[str, ...]
    user_expression: str
    group_expression: str


class RuleView(NamedTuple):
    """A placement rule in force. ``filter`` ``None``: it serves everybody."""

    name: str
    parameters: Mapping[str, str]
    filter: FilterView | None
    parent: RuleView | None


_UNCONFIGURED: Final = (PlacementRuleConfig("provided"),)


def rule_views(state: PartitionState) -> tuple[RuleView, ...]:
    """Returns the placement rules in the order in which they are tried; the recovery queue always comes last."""
    configured = state.config.placement_rules if state.config is not None else ()
    return (
        *(_view_rule(rule) for rule in configured or _UNCONFIGURED),
        RuleView("recovery", {"queue": RECOVERY_PATH}, None, None),
    )


def _view_rule(rule: PlacementRuleConfig) -> RuleView:
    parameters = {"create": _write_value(rule.create)}
    if rule.name == "tag":
        parameters["tagName"] = rule.value
    elif rule.name == "fixed":
        parameters["queue"] = rule.value
        parameters["qualified"] = _write_value(is_qualified(rule.value))
    return RuleView(
        rule.name,
        parameters,
        _view_filter(rule.filter) if rule.filter != FilterConfig() else None,
        _view_rule(rule.parent) if rule.parent is not None else None,
    )


def _view_filter(config: FilterConfig) -> FilterView:
    users, user_expression = _names_or_expression(config.users)
    groups, group_expression = _names_or_expression(config.groups)
    return FilterView(config.deny, users, groups, user_expression, group_expression)


def _names_or_expression(entries: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    if len(entries) == 1 and looks_like_regex(entries[0]):
        return (), entries[0]
    return entries, ""


def _write_value(value: bool) -> str:
    return "true" if value else "false"
