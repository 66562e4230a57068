"""How the tests of this folder write configurations and look at what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kornel.core.config.loader import load
from kornel.core.config.model import Configuration, PartitionConfig, QueueConfig
from kornel.core.config.text.problems import ConfigError, Problem, Severity


def partition_text(*queues: Any, **keys: Any) -> str:
    """One partition as YAML. JSON is YAML, and quotes every text; for plain scalars write YAML by hand."""
    return json.dumps({"partitions": [{"name": "default", "queues": list(queues), **keys}]})


def root(*children: Any, **keys: Any) -> dict[str, Any]:
    return {"name": "root", "queues": list(children), **keys}


def queue(name: str, *children: Any, g: Any = None, m: Any = None, **keys: Any) -> dict[str, Any]:
    """A queue with guaranteed amounts *g* and maximum *m*."""
    resources = {key: amounts for key, amounts in (("guaranteed", g), ("max", m)) if amounts is not None}
    return {"name": name, "queues": list(children), **({"resources": resources} if resources else {}), **keys}


def only(configuration: Configuration) -> PartitionConfig:
    (partition,) = configuration.partitions
    return partition


def load_root(*queues: Any, **keys: Any) -> QueueConfig:
    return only(load(partition_text(*queues, **keys))).root


def find(top: QueueConfig, path: str) -> QueueConfig:
    """The queue below *top* at *path*, e.g. ``a.b``."""
    for name in path.split("."):
        (top,) = [child for child in top.children if child.name == name]
    return top


def errors(text: str) -> list[Problem]:
    """The errors *text* is refused for; it has to be refused."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    found = [problem for problem in caught.value.problems if problem.severity is Severity.ERROR]
    assert found, "a refusal says why"
    return found


def warnings(text: str) -> list[str]:
    """The warnings of an accepted *text*, but for those of keys without effect where they stand."""
    return [message for message in all_warnings(text) if ": no effect" not in message]


def idle(text: str) -> list[str]:
    """The warnings of an accepted *text* that tell of keys without effect where they stand."""
    return [message for message in all_warnings(text) if ": no effect" in message]


def all_warnings(text: str) -> list[str]:
    return [str(problem) for problem in load(text).warnings]
