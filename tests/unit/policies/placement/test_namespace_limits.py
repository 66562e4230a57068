"""Limits that applications carry in their tags: protocol.md 4.3, config.md 7.8, T54, B20."""

from __future__ import annotations

import json

import pytest

from kornel.core.domain.resources import Resources
from kornel.core.policies.placement.namespace_limits import UNCHANGED, NamespaceLimits, namespace_limits

QUOTA, GUARANTEED, APPLICATIONS = (f"namespace.resource{what}" for what in ("quota", "guaranteed", "maxapps"))


def resource(**amounts: object) -> str:
    return json.dumps({"resources": {name: {"value": value} for name, value in amounts.items()}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (resource(vcore=2000), {"vcore": 2000}),
        (resource(vcore=2000, memory=10**11), {"vcore": 2000, "memory": 10**11}),
        (resource(vcore="2000"), {"vcore": 2000}),
        (resource(vcore=1, gpu=0), {"vcore": 1, "gpu": 0}),
        ('{"resources":{"vcore":{"value":1},"gpu":{}},"other":1}', {"vcore": 1, "gpu": 0}),
        (resource(vcore=2**63 - 1), {"vcore": 2**63 - 1}),
        (resource(vcore=2**63), None),
        (resource(vcore=1, memory=-1), None),
        (resource(vcore=0), None),
        (resource(vcore=1.5), None),
        (resource(vcore=True), None),
        (resource(vcore="ten"), None),
        (resource(vcore="9" * 5000), None),
        (resource(vcore=None), None),
        ('{"resources":{"vcore":' + "9" * 5000 + "}}", None),
        ('{"resources":{"vcore":5}}', None),
        ('{"resources":[]}', None),
        ("{}", None),
        ("[]", None),
        ("null", None),
        ("not json", None),
        ("[" * 100_000, None),
        ('{"resources":{"vcore":{"value":NaN}}}', None),
    ],
)
def test_amounts(text: str, expected: dict[str, int] | None) -> None:
    """A Resource in JSON with something above 0 and nothing below; any other text changes nothing."""
    amounts = None if expected is None else Resources(expected)
    assert namespace_limits({QUOTA: text}) == NamespaceLimits(max=amounts)
    assert namespace_limits({GUARANTEED: text}) == NamespaceLimits(guaranteed=amounts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5), ("0", None), ("-1", None), ("+5", None), ("1.5", None), ("many", None), ("\u0661", None),
        (str(2**64 - 1), 2**64 - 1), (str(2**64), None), ("1" * 5000, None),
    ],
)  # fmt: skip
def test_applications(text: str, expected: int | None) -> None:
    """An unsigned number above 0."""
    assert namespace_limits({APPLICATIONS: text}).max_applications == expected


def test_empty_text_withdraws_a_limit() -> None:
    """Removal has to be said: a tag that is merely absent changes nothing (B20)."""
    withdrawn = namespace_limits({QUOTA: "", GUARANTEED: "", APPLICATIONS: ""})
    assert withdrawn == NamespaceLimits(Resources(), Resources(), 0)
    assert namespace_limits({"namespace": "dev"}) is UNCHANGED
