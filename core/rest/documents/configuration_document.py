"""Makes the configuration document of REST from the text in force, complete and in one form (rest.md 4.9).

Amounts and names stay as they were written, so the document is made from the text and not from the parsed values. The
text was accepted before, so problems are ignored. A large text takes long, so callers use a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from kornel.core.config.keys.kind_sections import SECTIONS
from kornel.core.config.keys.properties import QUOTA_DELAY
from kornel.core.config.text.fields import Field
from kornel.core.config.text.problems import ProblemLog
from kornel.core.config.text.yaml_reader import MappingNode, ScalarNode, SequenceNode, read
from kornel.core.config.tree import ROOT
from kornel.core.domain.secrets import without_secrets
from kornel.shared.default_configuration import DEFAULT_CONFIGURATION

Document = dict[str, Any]

_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_SWITCHES: Final = {"enabled": "Enabled", "quotapreemptionenabled": "QuotaPreemptionEnabled"}
_OURS: Final = {
    "guaranteemode": "GuaranteeMode",
    "coexist": "Coexist",
    **{name: name.capitalize() for name in SECTIONS},
    "policies": "Policies",
    "cycle": "Cycle",
    "cost": "Cost",
    "governor": "Governor",
    "victim": "Victim",
}


_FREE_KEYS: Final = frozenset({"Properties", "Extra", "MaxResources", "Guaranteed", "Max", "ResourceWeights", "lost"})
"""The keys whose entries have names that an administrator chose."""


def configuration_document(text: str, checksum: str) -> Document:
    """Returns the configuration in *text*, with JSON's keys. Empty text: the built-in default."""
    log = ProblemLog()
    keys = Field(read(text or DEFAULT_CONFIGURATION, log).root, 1, 1, log).entries()
    partitions = keys["partitions"].items() if "partitions" in keys else []
    return {"Partitions": [_partition_document(item.entries()) for item in partitions], "Checksum": checksum}


def complete_document(document: Document, extra: Mapping[str, str]) -> Document:
    """Returns *document* with the service settings in force, except secrets."""
    settings = {"Extra": without_secrets(dict(sorted(extra.items())))} if extra else {}
    return {**document, **settings, "DeadlockDetectionEnabled": False, "DeadlockTimeoutSeconds": 60}


def as_yaml(document: Document) -> str:
    """Returns *document* as YAML with its keys, without nested objects in which nothing is set."""
    shown: str = yaml.dump(
        _lower_keys(document), Dumper=_DUMPER, sort_keys=False, indent=4, allow_unicode=True, default_flow_style=False
    )
    return shown


def _partition_document(keys: Mapping[str, Field]) -> Document:
    queues = [_queue_document(item.entries()) for item in _items(keys, "queues")]
    if len(queues) != 1 or queues[0]["Name"].lower() != ROOT:
        queues = [{"Name": ROOT, "Parent": True, "Resources": {}, "ChildTemplate": {"Resources": {}}, "Queues": queues}]
    queues[0]["Parent"] = True
    document = {
        "Name": _text_of(keys, "name") or "default",
        "Queues": queues,
        "PlacementRules": [_rule_document(item.entries()) for item in _items(keys, "placementrules")],
        "Limits": [_limit_document(item.entries()) for item in _items(keys, "limits")],
        "Preemption": _preemption_document(_entries_of(keys, "preemption")),
        "NodeSortPolicy": _node_sort(_entries_of(keys, "nodesortpolicy")),
        "UserGroupResolver": {"type": _text_of(_entries_of(keys, "usergroupresolver"), "type")},
        "Topology": [item.text() for item in _items(keys, "topology")],
    }
    return _without_empty(document, "PlacementRules", "Limits", "Topology")


def _queue_document(keys: Mapping[str, Field]) -> Document:
    children = [_queue_document(item.entries()) for item in _items(keys, "queues")]
    resources = _entries_of(keys, "resources")
    properties = _texts_of(keys, "properties")
    if QUOTA_DELAY in resources and resources[QUOTA_DELAY].given:
        properties.setdefault(QUOTA_DELAY, resources[QUOTA_DELAY].text())
    document = {
        "Name": _text_of(keys, "name"),
        "Parent": bool(children) or _flag_of(keys, "parent"),
        "Resources": _resources_document(resources),
        "MaxApplications": _number_of(keys, "maxapplications"),
        "Properties": without_secrets(properties),
        "AdminACL": _text_of(keys, "adminacl"),
        "SubmitACL": _text_of(keys, "submitacl"),
        "ChildTemplate": _template_document(_entries_of(keys, "childtemplate")),
        "Queues": children,
        "Limits": [_limit_document(item.entries()) for item in _items(keys, "limits")],
    }
    return _without_empty(
        document, "Parent", "MaxApplications", "Properties", "AdminACL", "SubmitACL", "Queues", "Limits"
    )


def _template_document(keys: Mapping[str, Field]) -> Document:
    document = {
        "MaxApplications": _number_of(keys, "maxapplications"),
        "Properties": without_secrets(_texts_of(keys, "properties")),
        "Resources": _resources_document(_entries_of(keys, "resources")),
    }
    return _without_empty(document, "MaxApplications", "Properties")


def _resources_document(keys: Mapping[str, Field]) -> Document:
    return _without_empty(
        {"Guaranteed": _texts_of(keys, "guaranteed"), "Max": _texts_of(keys, "max")}, "Guaranteed", "Max"
    )


def _limit_document(keys: Mapping[str, Field]) -> Document:
    document = {
        "Limit": _text_of(keys, "limit"),
        "Users": [item.text() for item in _items(keys, "users")],
        "Groups": [item.text() for item in _items(keys, "groups")],
        "MaxResources": _texts_of(keys, "maxresources"),
        "MaxApplications": _number_of(keys, "maxapplications"),
    }
    return _without_empty(document, "Users", "Groups", "MaxResources", "MaxApplications")


def _rule_document(keys: Mapping[str, Field]) -> Document:
    filtered = _entries_of(keys, "filter")
    document = {
        "Name": _text_of(keys, "name"),
        "Create": _flag_of(keys, "create"),
        "Filter": _without_empty(
            {
                "Type": _text_of(filtered, "type"),
                "Users": [item.text() for item in _items(filtered, "users")],
                "Groups": [item.text() for item in _items(filtered, "groups")],
            },
            "Users",
            "Groups",
        ),
        "Parent": _rule_document(keys["parent"].entries()) if "parent" in keys and keys["parent"].given else {},
        "Value": _text_of(keys, "value"),
    }
    return _without_empty(document, "Create", "Parent", "Value")


def _preemption_document(keys: Mapping[str, Field]) -> Document:
    document: Document = {}
    for key, name in _SWITCHES.items():
        if key in keys and keys[key].given:
            document[name] = _flag_of(keys, key)
    for key, name in _OURS.items():
        if key in keys and keys[key].given:
            document[name] = _plain_value(keys[key])
    return document


def _node_sort(keys: Mapping[str, Field]) -> Document:
    weights = {name: found.number() for name, found in _entries_of(keys, "resourceweights").items()}
    return _without_empty({"Type": _text_of(keys, "type"), "ResourceWeights": weights}, "ResourceWeights")


def _plain_value(field: Field) -> Any:
    """Returns the value of a setting of Kornel's own, with numbers and booleans as such."""
    if isinstance(field.node, MappingNode):
        return {name: _plain_value(found) for name, found in field.entries().items()}
    if isinstance(field.node, SequenceNode):
        return [_plain_value(item) for item in field.items()]
    text = field.text()
    if isinstance(field.node, ScalarNode) and field.node.plain:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def _entries_of(keys: Mapping[str, Field], key: str) -> Mapping[str, Field]:
    return keys[key].entries() if key in keys else {}


def _items(keys: Mapping[str, Field], key: str) -> list[Field]:
    return keys[key].items() if key in keys else []


def _text_of(keys: Mapping[str, Field], key: str) -> str:
    return keys[key].text() if key in keys else ""


def _texts_of(keys: Mapping[str, Field], key: str) -> dict[str, str]:
    return {name: text for name, (text, _) in keys[key].text_map().items()} if key in keys else {}


def _flag_of(keys: Mapping[str, Field], key: str) -> bool:
    return key in keys and keys[key].boolean()


def _number_of(keys: Mapping[str, Field], key: str) -> int:
    return keys[key].unsigned() if key in keys else 0


def _without_empty(document: Document, *names: str) -> Document:
    return {name: value for name, value in document.items() if value or name not in names}


def _lower_keys(value: Any, *, names: bool = False) -> Any:
    """Returns *value* with keys in lower case; ``names`` tells whether its keys are names that an administrator chose,
    which stay as they are."""
    if isinstance(value, list):
        return [_lower_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    shown: Document = {}
    for key, item in value.items():
        below = _lower_keys(item, names=key in _FREE_KEYS)
        if isinstance(item, dict) and not below and not names:
            continue
        if key == "type" and not below:
            continue
        shown[key if names else key.lower()] = below
    return shown
