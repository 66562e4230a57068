"""Checks placement rules: each has to be complete and able to reach a queue of the configured tree (V40 to V47, B3,
B15)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kornel.core.config.keys.declared import DeclaredQueue, DeclaredRule
from kornel.core.config.text.fields import Field
from kornel.core.config.text.yaml_reader import shorten_text
from kornel.core.domain.names import (
    GROUP_NAME,
    MOST_LEVELS,
    QUEUE_NAME,
    RECOVERY_QUEUE,
    USER_NAME,
    is_group_name,
    is_queue_name,
    is_user_name,
    looks_like_regex,
)
from kornel.core.policies.placement.patterns import find_flaw

MOST_EXPRESSIONS: Final = 256
"""The most regular expressions in the filters of a configuration. Each may take 128 KiB of memory."""

RULES: Final = ("provided", "user", "fixed", "tag")

_RULE_NAME: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_]*", re.ASCII)


def check_rules(rules: list[DeclaredRule], root: DeclaredQueue) -> None:
    """Report every rule that is incomplete, or that can only fail in the tree below *root*."""
    queues = {queue.path: queue for queue in root.walk_queues()}
    for number, rule in enumerate(rules):
        chain = _chain_of(rule)
        sound = [_check_rule(link) for link in chain]
        if all(sound):
            _check_static_path(number, chain, queues)


def check_expressions(rules: Iterable[DeclaredRule]) -> None:
    """Report the first filter that has one regular expression too many. *rules*: those of the whole configuration."""
    count = 0
    for rule in rules:
        for link in _chain_of(rule):
            for names in (link.filter_users, link.filter_groups):
                if len(names) != 1 or not looks_like_regex(names[0][0]):
                    continue
                count += 1
                if count > MOST_EXPRESSIONS:
                    names[0][1].error(
                        f"more than {MOST_EXPRESSIONS} filters have a regular expression",
                        "lists of names, or fewer rules",
                    )
                    return


def _chain_of(rule: DeclaredRule) -> list[DeclaredRule]:
    """Returns *rule* and its parents, outermost first: the order in which the queue path grows."""
    chain = [rule]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    return chain[::-1]


def _check_rule(rule: DeclaredRule) -> bool:
    """Tells whether *rule* is complete, apart from its filter."""
    _check_filter_names("user", rule.filter_users, is_user_name, USER_NAME)
    _check_filter_names("group", rule.filter_groups, is_group_name, GROUP_NAME)
    if rule.name not in RULES:
        what = "not known" if _RULE_NAME.fullmatch(rule.name) else "not a name"
        rule.name_field.error(f"placement rule {shorten_text(rule.name)} is {what}", f"one of {', '.join(RULES)}")
        return False
    if rule.name == "tag" and not rule.value:
        rule.value_field.error("a tag rule without a value", "value: the name of a tag")
        return False
    return rule.name != "fixed" or _check_fixed(rule)


def _check_fixed(rule: DeclaredRule) -> bool:
    if not rule.value:
        rule.value_field.error("a fixed rule without a value", "value: a queue path")
        return False
    elements = rule.value.split(".")
    if len(elements) > MOST_LEVELS:
        rule.value_field.error(f"a path of {len(elements)} levels", f"at most {MOST_LEVELS}")
        return False
    for element in elements:
        if not is_queue_name(element) or element == RECOVERY_QUEUE:
            rule.value_field.error(
                f"{shorten_text(element)} in {shorten_text(rule.value)} is not a queue name", QUEUE_NAME
            )
            return False
    if _is_qualified(rule.value) and rule.parent is not None:
        rule.value_field.error(
            f"{shorten_text(rule.value)} starts at root, so it cannot stand below a parent rule",
            "a path without root, or no parent rule",
        )
        return False
    return True


def _is_qualified(path: str) -> bool:
    return path == "root" or path.startswith("root.")


def _check_filter_names(
    kind: str, names: list[tuple[str, Field]], is_name: Callable[[str], bool], expected: str
) -> None:
    """Report a filter whose only entry is neither a name nor an expression, and entries of a longer one that are not
    names (V42, V43)."""
    if len(names) == 1:
        text, at = names[0]
        if is_name(text):
            return
        flaw = find_flaw(text) if looks_like_regex(text) else "neither a name nor a regular expression"
        if flaw is not None:
            at.error(f"filter {kind} {shorten_text(text)}: {flaw}", f"{expected}; or a regular expression")
        return
    seen: set[str] = set()
    for text, at in names:
        if not is_name(text):
            at.warning(f"filter {kind} {shorten_text(text)} is not a name and is left out of the list", expected)
        elif text in seen:
            at.warning(f"filter {kind} {shorten_text(text)} is listed twice")
        seen.add(text)


def _check_static_path(number: int, chain: list[DeclaredRule], queues: Mapping[str, DeclaredQueue]) -> None:
    """Follow the fixed part of *chain* through the tree, as far as it starts at the root.

    Each rule is checked for the path up to itself: the path has to exist, or the rule has to be allowed to create it.
    Only the last rule of the chain may end at a leaf.
    """
    path = ""
    for rule in chain:
        if rule.name != "fixed" or not (path or _is_qualified(rule.value)):
            return
        path = f"{path}.{rule.value}" if path else rule.value
        if path.count(".") >= MOST_LEVELS:
            problem: str | None = f"more than {MOST_LEVELS} levels"
        else:
            problem = _find_obstacle(path, queues, create=rule.create, last=rule is chain[-1])
        if problem is not None:
            names = "->".join(link.name for link in chain)
            rule.value_field.error(f"rule {number} ({names}) leads to {shorten_text(path)}: {problem}")
            return


def _find_obstacle(path: str, queues: Mapping[str, DeclaredQueue], *, create: bool, last: bool) -> str | None:
    """Returns why a rule cannot reach *path*; ``None``: it can. *queues* by path; *path* starts at the root, which
    always exists."""
    deepest = path
    while deepest not in queues:
        deepest = deepest.rpartition(".")[0]
    queue = queues[deepest]
    must_be_parent = not last or deepest != path
    if must_be_parent and not queue.parent:
        return f"{deepest} is a leaf, so no queue can be below it"
    if deepest != path and not create:
        return f"there is no {path.removeprefix(deepest + '.')!r} below {deepest}, and the rule does not create it"
    if not must_be_parent and queue.parent:
        return f"{deepest} is a parent, and applications need a leaf"
    return None
