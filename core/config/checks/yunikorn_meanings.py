"""Warns of settings that YuniKorn and Kornel both accept, with different meanings.

Each warning says what YuniKorn does and what Kornel does. What YuniKorn accepts and Kornel refuses needs no warning,
because an error cannot be overlooked. Rules: items B7 to B16 of config.md 14, and preemption.md 0.2, B.3 and D.2.
"""

from __future__ import annotations

from typing import Final

from kornel.core.config.keys import properties
from kornel.core.config.keys.declared import Amounts, DeclaredPartition, DeclaredQueue, DeclaredRule
from kornel.core.config.text.fields import Field
from kornel.core.config.text.yaml_reader import shorten_text
from kornel.core.domain.settings import SortPolicy

_QUOTA_KEYS: Final = (properties.QUOTA_DELAY, properties.QUOTA_TIMER, properties.QUOTA_MISS)
_DEFAULTS: Final = properties.resolve_properties({}, leaf=True)


def warn_of_differences(partition: DeclaredPartition, root: DeclaredQueue) -> None:
    """Warn of every setting in *partition*, with its queues below *root*, that means something else in YuniKorn."""
    for rule in partition.rules:
        _warn_of_rule(rule)
    makers = [_Maker(rule) for rule in partition.rules if rule.create]
    _warn_of_queue(root, root.path, frozenset(), makers)


class _Maker:
    """The part of the tree in which a rule may create queues."""

    def __init__(self, rule: DeclaredRule) -> None:
        chain: list[DeclaredRule] = []
        link: DeclaredRule | None = rule
        while link is not None:
            chain.insert(0, link)
            link = link.parent
        steps: list[str] = []
        while chain and chain[0].name == "fixed":
            steps += chain.pop(0).value.split(".")
        if steps[:1] != ["root"]:
            steps.insert(0, "root")
        self._start = ".".join(steps) + "."
        # A submitted queue or a tag may be a whole path, whatever the parent rules say.
        self._anywhere = any(link.name in ("provided", "tag") for link in chain)
        self._levels = len(chain)

    def may_create(self, path: str) -> bool:
        """Tells whether a queue may be created below the one at *path*."""
        below = f"{path}."
        return self._anywhere or self._start.startswith(below) or (self._levels > 1 and below.startswith(self._start))


def _warn_of_rule(rule: DeclaredRule) -> None:
    if rule.filter.deny and rule.filter_type != "deny":
        rule.filter_type_field.warning(
            f"YuniKorn takes {shorten_text(rule.filter_type)} for allow; here it denies, whatever its case",
            "deny, in lower case",
        )
    above = rule.parent
    if above is None:
        return
    if above.name == "fixed" and above.value == "root" and above.parent is None:
        above.value_field.warning(
            "YuniKorn puts the queues of this parent rule below root.root; here they are below root", "no parent rule"
        )
    _warn_of_rule(above)


def _warn_of_queue(queue: DeclaredQueue, written: str, in_template: frozenset[str], makers: list[_Maker]) -> None:
    """Warn of the settings of *queue*.

    *written*: the path as it is spelt in the text; *in_template*: what the template in force for children sets.
    """
    if queue.template is not None and queue.parent:
        in_template = frozenset(queue.template.properties)
        _warn_of_zeros(queue.template.max, f"the template of {shorten_text(queue.path)}")
    _warn_of_zeros(queue.max, f"queue {shorten_text(queue.path)}")
    _warn_of_properties(queue)
    if queue.parent and any(maker.may_create(queue.path) for maker in makers):
        _warn_of_inheritance(queue, in_template)
    if queue.limits and queue.limits_field is not None and written != queue.path:
        queue.limits_field.warning(
            f"YuniKorn does not enforce limits of queues written with capitals ({shorten_text(written)});"
            " here they hold",
            "queue names in lower case",
        )
    for child in queue.children:
        _warn_of_queue(child, f"{written}.{child.written_name}", in_template, makers)


def _warn_of_zeros(most: Amounts | None, what: str) -> None:
    if most is not None and most.complete and most.values and not any(most.values.values()):
        most.at.warning(
            f"every type of this max is 0: YuniKorn takes it for no max at all; here {what} gets none of "
            f"{shorten_text(', '.join(most.values))}"
        )


def _warn_of_properties(queue: DeclaredQueue) -> None:
    for key, at in queue.property_fields.items():
        text = queue.properties[key]
        in_resources = isinstance(at.above, Field) and at.above.key == "resources"
        if key == properties.QUOTA_DELAY and properties.is_bare_delay(text) and not in_resources:
            at.warning(
                f"YuniKorn takes {shorten_text(text)} without a unit for 0 (off); here it is seconds", f"{text}s"
            )
        elif key == properties.SORT_POLICY and text == SortPolicy.STATE_AWARE and not queue.parent:
            at.warning("recent versions of YuniKorn sort stateaware as fifo; here one application at a time may start")
        elif key == properties.PREEMPTION_DELAY and properties.is_at_once(text):
            at.warning(f"YuniKorn takes {shorten_text(text)} for 30s; here asks preempt at once")
        elif queue.is_root and key == properties.PRIORITY_OFFSET and _has_effect(key, text):
            at.warning("YuniKorn adds the offset of root when it preempts; here it has no effect", "no offset")


def _warn_of_inheritance(queue: DeclaredQueue, in_template: frozenset[str]) -> None:
    for key, at in queue.property_fields.items():
        if key in in_template or key in _QUOTA_KEYS:
            continue
        passed_on = properties.inherited_properties({key: queue.properties[key]})
        if properties.resolve_properties(passed_on, leaf=True) != _DEFAULTS:
            at.warning(
                f"YuniKorn keeps {key} from queues that placement rules create below {shorten_text(queue.path)}; "
                "here they inherit it",
                "the same in childtemplate, to say it for both",
            )


def _has_effect(key: str, text: str) -> bool:
    return properties.resolve_properties({key: text}, leaf=True) != _DEFAULTS
