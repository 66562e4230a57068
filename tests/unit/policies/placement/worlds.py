"""How the tests of this folder build a partition and ask it where an application would go."""

from __future__ import annotations

from typing import Any

from kornel.core.config.loader import load
from kornel.core.domain.commands import ApplicationSpec
from kornel.core.engine.configuration import configure
from kornel.core.policies.placement.applicant import applicant_of
from kornel.core.policies.placement.decide import Placed, place_applicant
from kornel.core.state.partition_state import PartitionState
from tests.unit.config.reading import only, partition_text, root

RECOVERY = "root.@recovery@"


def partition(*children: Any, rules: Any = (), submitacl: str = "*", **keys: Any) -> PartitionState:
    """A partition with *children* below a root that everyone may submit to."""
    text = partition_text(root(*children, submitacl=submitacl, **keys), placementrules=list(rules))
    return configure.build_partition("[rm]default", only(load(text)), 0, [])


def fixed(value: str, *, create: bool = False, parent: Any = None) -> dict[str, Any]:
    return rule("fixed", create=create, parent=parent, value=value)


def rule(name: str, *, create: bool = False, parent: Any = None, **keys: Any) -> dict[str, Any]:
    return {"name": name, "create": create, **({"parent": parent} if parent else {}), **keys}


def application(
    queue: str = "",
    *,
    user: str = "developer",
    groups: tuple[str, ...] = (),
    forced: bool = False,
    tags: dict[str, str] | None = None,
) -> ApplicationSpec:
    given = {**(tags or {}), **({"application.create.force": "true"} if forced else {})}
    return ApplicationSpec("app", queue, "[rm]default", user, groups, tuple(given.items()))


def place_in(state: PartitionState, spec: ApplicationSpec) -> str | None:
    """The path that *spec* is given; ``None``: no queue takes it."""
    found = place_applicant(state.placement_rules, state.queues, applicant_of(spec))
    return found.path if isinstance(found, Placed) else None


def outcomes(state: PartitionState, spec: ApplicationSpec) -> list[str]:
    """What came of each rule for *spec*, which no queue takes."""
    found = place_applicant(state.placement_rules, state.queues, applicant_of(spec))
    assert not isinstance(found, Placed)
    return list(found.outcomes)
