"""The placement rules: each turns an applicant into a queue path, or says why it does not (config.md 8.2).

Rules differ in the text that they start from and in how they read it; everything else is common to them. A new rule is
a row of ``KINDS``, and its name in ``kornel.core.config.checks.placement_rules``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kornel.core.domain.settings import PlacementRuleConfig
from kornel.core.model.queues import Queue
from kornel.core.policies.placement.applicant import Applicant
from kornel.core.policies.placement.effort import STEPS_OF_RULE, Effort
from kornel.core.policies.placement.filters import Filter, compile_filter
from kornel.core.policies.placement.queue_paths import flatten_name, is_qualified, path_flaw


class NoMatch(NamedTuple):
    """The reason why a rule gives no queue. The next rule is tried, whatever the reason (config.md B21)."""

    why: str


class Kind(NamedTuple):
    """The properties that distinguish the kinds of rules.

    text       the name it starts from, given the applicant and the rule's value; empty: none
    qualified  tells whether a text that starts at the root is a whole path, for which the parent rule is not used
    hierarchy  tells whether dots separate queues; otherwise they become ``_dot_``
    """

    text: Callable[[Applicant, str], str]
    qualified: bool
    hierarchy: bool


KINDS: Final[Mapping[str, Kind]] = {
    "provided": Kind(lambda applicant, _: applicant.queue, qualified=True, hierarchy=False),
    "user": Kind(lambda applicant, _: applicant.user, qualified=False, hierarchy=False),
    "fixed": Kind(lambda _, value: value, qualified=True, hierarchy=True),
    "tag": Kind(lambda applicant, value: applicant.tags.get(value, ""), qualified=True, hierarchy=False),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One configured rule with its chain of parents."""

    name: str
    kind: Kind
    value: str
    create: bool
    parent: Rule | None
    filter: Filter
    effort: Effort

    def path(self, applicant: Applicant, queues: Mapping[str, Queue]) -> str | NoMatch:
        """Returns the path, in lower case, of a queue that exists or that this rule may create."""
        text = self.kind.text(applicant, self.value)
        if not text:
            return NoMatch("gives no name")
        if not self.filter.admits(applicant.user, applicant.groups):
            return NoMatch("its filter keeps the application out")
        if self.kind.qualified and is_qualified(text):
            path: str | NoMatch = text
        else:
            path = self._below_parent(text, applicant, queues)
        if isinstance(path, NoMatch):
            return path
        flaw = path_flaw(path)
        if flaw is not None:
            return NoMatch(flaw)
        path = path.lower()
        if not self.create and path not in queues:
            return NoMatch(f"{path} does not exist, and the rule does not create it")
        return path

    def _below_parent(self, text: str, applicant: Applicant, queues: Mapping[str, Queue]) -> str | NoMatch:
        above: str | NoMatch = "root"
        if self.parent is not None:
            above = self.parent.path(applicant, queues)
            if isinstance(above, NoMatch):
                return NoMatch(f"parent rule {self.parent.name}: {above.why}")
            queue = queues.get(above)
            if queue is not None and queue.leaf:
                return NoMatch(f"parent rule {self.parent.name}: {above} is a leaf")
        return f"{above}.{text if self.kind.hierarchy else flatten_name(text)}"


def compile_rules(configs: Iterable[PlacementRuleConfig]) -> tuple[Rule, ...]:
    """Returns the rules of a partition, in order; if none is configured, only ``provided``."""
    return tuple(map(_compile_rule, configs)) or (_compile_rule(PlacementRuleConfig("provided")),)


def _compile_rule(config: PlacementRuleConfig) -> Rule:
    parent = _compile_rule(config.parent) if config.parent is not None else None
    chosen = compile_filter(config.filter)
    effort = Effort(STEPS_OF_RULE).add_other(chosen.effort)
    if parent is not None:
        effort = effort.add_other(parent.effort)
    return Rule(config.name, KINDS[config.name], config.value, config.create, parent, chosen, effort)
