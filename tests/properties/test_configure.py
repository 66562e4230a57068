"""Following a change leads to where building afresh would have led, and touches nothing that did not change."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.config.comparison import share_equal_parts
from kornel.core.config.loader import load
from kornel.core.config.model import Configuration, PartitionConfig
from kornel.core.config.text.problems import ConfigError
from kornel.core.engine.configuration import configure
from kornel.core.policies.queue_order import find_fair_max
from kornel.core.state.partition_state import PartitionState
from tests.examples import scale_examples

NAMES = ("a", "b", "c")


def _resources() -> st.SearchStrategy[dict[str, Any]]:
    amount = st.integers(1, 3).map(str)
    return st.fixed_dictionaries(
        {}, optional={"max": st.fixed_dictionaries({}, optional={"vcore": amount, "gpu": amount})}
    )


_PROPERTIES = st.dictionaries(
    st.sampled_from(
        [
            "priority.offset",
            "application.sort.policy",
            "preemption.policy",
            "preemption.min-runtime",
            "preemption.within",
        ]
    ),
    st.sampled_from(["1", "fair", "fence", "disabled", "5s", "priority"]),
    max_size=2,
)


def _queue(children: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"name": st.sampled_from(NAMES), "queues": children},
        optional={
            "parent": st.booleans(),
            "resources": _resources(),
            "properties": _PROPERTIES,
            "submitacl": st.sampled_from(["*", "bob"]),
            "maxapplications": st.integers(0, 2),
            "childtemplate": st.fixed_dictionaries({"resources": _resources(), "properties": _PROPERTIES}),
        },
    )


def _list(queues: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[Any]]:
    return st.lists(queues, max_size=3, unique_by=lambda queue: str(queue["name"]))


_TREES = _list(_queue(_list(_queue(_list(_queue(st.just([])))))))


def _loaded(tree: list[Any]) -> Configuration | None:
    try:
        return load(json.dumps({"partitions": [{"queues": [{"name": "root", "queues": tree}]}]}))
    except ConfigError:
        return None


def _terms(state: PartitionState) -> dict[str, tuple[Any, ...]]:
    """Of every queue that is listed; type indexes depend on history, so amounts are told by name."""
    named = state.types.to_resources
    return {
        path: (
            (queue.leaf, queue.managed, queue.max_applications, queue.properties, queue.submit_acl, queue.admin_acl),
            named(queue.guaranteed),
            named(queue.max),
            {state.types.names[t]: amount for t, amount in queue.fair_terms},
            queue.priority,
            queue.dynamic_terms is not None and (named(queue.dynamic_terms.max), queue.dynamic_terms.leaf_properties),
        )
        for path, queue in state.queues.items()
        if not queue.draining
    }


def _only(configuration: Configuration) -> PartitionConfig:
    (partition,) = configuration.partitions
    return partition


@settings(max_examples=scale_examples(200))
@given(st.lists(_TREES, min_size=2, max_size=4), st.booleans())
def test_following_changes_leads_where_building_leads(trees: list[list[Any]], sharing: bool) -> None:
    """Whatever was followed before, with or without shared parts, the queues listed are as if built afresh."""
    configurations = [found for found in map(_loaded, trees) if found is not None]
    if not configurations:
        return
    state = configure.build_partition("[rm]default", _only(configurations[0]), 0, [])
    before = configurations[0]
    for configuration in configurations[1:]:
        before = share_equal_parts(configuration, before) if sharing else configuration
        assert configure.find_obstacles(state, _only(before)) == [], "no queue has applications"
        configure.update(state, _only(before), 0)
        fresh = configure.build_partition("[rm]default", _only(configuration), 0, [])
        assert _terms(state) == _terms(fresh)
        assert all(dict(queue.fair_max) == find_fair_max(queue) for queue in state.queues.values())
