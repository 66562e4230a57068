"""Whatever the text, loading it gives a configuration or a ConfigError.

``FUZZ=50000`` tries so many texts for each of these tests instead of Hypothesis' usual number (``make fuzz``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kornel.core.config.loader import checksum_of, load
from kornel.core.config.text.problems import ConfigError, Severity
from kornel.shared.default_configuration import DEFAULT_CONFIGURATION

KEYS = [
    "partitions", "name", "queues", "parent", "resources", "guaranteed", "max", "maxapplications", "properties",
    "adminacl", "submitacl", "childtemplate", "limits", "limit", "users", "groups", "maxresources", "placementrules",
    "create", "value", "filter", "type", "preemption", "enabled", "cycle", "batch", "monitor", "policies",
    "nodesortpolicy", "resourceweights", "vcore", "memory", "quota.preemption.delay", "preemption.delay", "<<", "root",
    "preemption.policy", "priority.offset",
]  # fmt: skip
WORDS = [
    "",
    "root",
    "*",
    "a,b c",
    "10",
    "-1",
    "1Gi",
    "500m",
    "fixed",
    "root.a",
    "user",
    "30s",
    "true",
    "x.*",
    "(",
    "[[:",
    "Deny",
    "tag",
    "provided",
    "disabled",
    "3600",
    "0",
    "Upper",
    "a system:masters",
]

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(WORDS), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=5)), inner, max_size=4),
    ),
    max_leaves=20,
)


FUZZ = int(os.environ.get("FUZZ", "0"))
F = Callable[..., None]

pytestmark = pytest.mark.timeout(900 + FUZZ // 10)


def thoroughly(test: F) -> F:
    """As many examples as were asked for; without a wish, as usual."""
    if not FUZZ:
        return test
    return settings(max_examples=FUZZ, deadline=None, suppress_health_check=list(HealthCheck))(test)


def attempt(text: str) -> None:
    try:
        configuration = load(text)
    except ConfigError as error:
        refusal = error
    else:
        assert configuration.partitions
        assert all(problem.severity is Severity.WARNING for problem in configuration.warnings)
        return
    assert any(problem.severity is Severity.ERROR for problem in refusal.problems)
    assert str(refusal)


@thoroughly
@given(st.text())
@example("\x00")
@example("\ud800")
@example("\ufeff")
@example("%YAML 9.9\n---\na")
@example("!!int a: b")
@example("&a &b c")
@example("? ?")
@example("a: !<tag:yaml.org,2002:int> x")
@example("checksum: ")
def test_arbitrary_text(text: str) -> None:
    """Nothing but ConfigError escapes for arbitrary text."""
    attempt(text)
    assert len(checksum_of(text)) == 64


@thoroughly
@given(st.text(alphabet="-:?[]{},&*!|>'\"%@`#<~ \n\tabroot0159.\\x"))
def test_arbitrary_punctuation(text: str) -> None:
    """Nothing but ConfigError escapes for text made of what YAML gives a meaning to."""
    attempt(text)


@thoroughly
@given(values)
def test_arbitrary_structure(value: Any) -> None:
    """Nothing but ConfigError escapes for well-formed YAML of any shape, at any level of the schema."""
    for wrapped in (
        value,
        {"partitions": value},
        {"partitions": [value]},
        {"partitions": [{"queues": [], "preemption": value, "nodesortpolicy": value, "limits": [value]}]},
        {"partitions": [{"queues": [{"name": "a", "resources": value, "properties": value, "limits": [value]}]}]},
        {"partitions": [{"queues": [{"name": "a", "queues": [value]}], "placementrules": [value]}]},
    ):
        attempt(json.dumps(wrapped))


@thoroughly
@given(st.data())
def test_damaged_text(data: st.DataObject) -> None:
    """Nothing but ConfigError escapes for a good text with a piece cut out or put in."""
    start = data.draw(st.integers(0, len(DEFAULT_CONFIGURATION)))
    end = data.draw(st.integers(start, min(start + 10, len(DEFAULT_CONFIGURATION))))
    attempt(DEFAULT_CONFIGURATION[:start] + data.draw(st.text(max_size=5)) + DEFAULT_CONFIGURATION[end:])
