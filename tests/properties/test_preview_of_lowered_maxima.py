"""A preview says who would have to leave for lowered maxima, and that is who is told to leave if nothing changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.config.loader import load
from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.domain.effects import Effect, PreemptionDecided
from kornel.core.domain.history.event_records import unpack_effects
from kornel.core.domain.reasons import Outcome
from kornel.core.preemption.quota.plan import KIND
from kornel.core.preemption.quota.shares import find_excess
from kornel.core.telling.configuration.impact import Impact
from kornel.core.telling.queues.above_max import above_max_of
from kornel.core.telling.reader import Reader
from tests.examples import scale_examples
from tests.properties.test_quota_standing import Cluster, history
from tests.scenarios.language import RM
from tests.scenarios.stage import Stage

SECOND: Final = 10**9
LOOKED_AT_S: Final = 15
"""Longer than every delay, and shorter than the time after which victims count as stuck."""


def preview(stage: Stage, text: str) -> Impact:
    """Returns what *text* would change, asked for as the core asks."""
    reader, configuration = Reader(stage.engine, lambda: stage.now_ns), load(text)
    watched: Mapping[str, Sequence[str]] = {}
    while True:
        impact = reader.configuration_preview(watched).impact_of(configuration)
        if not impact.untried:
            return impact
        watched = impact.untried


def lower_some(cluster: Cluster) -> str:
    """Lower the max of some queues, and give them other guarantees and delays. Returns the text that says so."""
    rng = cluster.rng
    for path, terms in cluster.listed.items():
        held = cluster.used(path)
        if rng.random() < 0.6:
            lowered = rng.randint(0, held)
            terms.most = lowered if terms.most is None else min(terms.most, lowered)
        terms.guaranteed = rng.choice([0, 0, terms.guaranteed, rng.randint(0, held)])
        terms.delay = rng.choice([0, 1, 1, 1, 2])
    for path, terms in sorted(cluster.listed.items()):
        above = cluster.listed.get(path.rpartition(".")[0])
        if above is not None and above.most is not None and terms.most is not None:
            terms.most = min(terms.most, above.most)
        if terms.most is not None:
            terms.guaranteed = min(terms.guaranteed, terms.most)
    for path, terms in cluster.listed.items():
        below = [other for name, other in cluster.listed.items() if name.startswith(f"{path}.")]
        promised = sum(other.guaranteed for other in below)
        if promised > (terms.guaranteed or promised) or (terms.most is not None and promised > terms.most):
            for other in below:
                other.guaranteed = 0
    return json.dumps(
        {
            "partitions": [
                {
                    "name": "default",
                    "preemption": {"quotapreemptionenabled": True},
                    "queues": [{"name": "root", "queues": _entries(cluster, "")}],
                }
            ]
        }
    )


def _entries(cluster: Cluster, above: str) -> list[dict[str, Any]]:
    found = []
    for path, terms in cluster.listed.items():
        if path.rpartition(".")[0] == above:
            resources = {"guaranteed": {"f": terms.guaranteed}} if terms.guaranteed else {}
            if terms.most is not None:
                resources["max"] = {"f": terms.most}
            properties = {"quota.preemption.delay": f"{terms.delay}"} if terms.delay else {}
            found.append(
                {
                    "name": path.rpartition(".")[2],
                    "resources": resources,
                    "properties": properties,
                    "parent": path in ("p", "q"),
                    "queues": _entries(cluster, path),
                }
            )
    return found


@settings(max_examples=scale_examples(300), deadline=None)
@given(st.integers(0, 2**32))
def test_who_is_foretold_to_leave_is_told_to_leave(seed: int) -> None:
    """The same tasks for the same queues in the same order, and the same rest with the same reasons."""
    cluster = history(seed)
    cluster.pass_time(4)
    stage, state = cluster.stage, cluster.state
    text = lower_some(cluster)
    impact = preview(stage, text)
    foretold = {
        found.path: [(victim.application_id, victim.key) for victim in found.victims] for found in impact.enforcements
    }
    decisions = [effect for effect in watch(stage, text) if isinstance(effect, PreemptionDecided)]
    decided = [one for one in decisions if one.kind == KIND and one.outcome is not Outcome.TIMER_POSTPONED]
    told: dict[str, list[tuple[str, str]]] = {}
    for decision in decided:
        victims = told.setdefault(decision.queue, [])
        victims += [(victim.application_id, victim.key) for victim in decision.victims]
    assert foretold == {path: victims for path, victims in told.items() if path in foretold or victims}
    assert list(foretold) == [path for path in told if path in foretold], "in the order of the runs"
    for found in impact.enforcements:
        queue = state.queues[found.path]
        assert found.unmet == state.types.to_resources(find_excess(queue, queue.max))
        assert bool(found.reasons) == bool(found.unmet)
        standing = above_max_of(state, queue)
        if found.unmet:
            assert standing is not None
            assert found.reasons == (standing.protected or (standing.course,))


def watch(stage: Stage, text: str) -> list[Effect]:
    """Apply *text* and let time pass, in which nobody leaves and nothing comes. Returns all effects."""
    effects = unpack_effects(stage.engine.apply(UpdateConfiguration(RM, text), stage.now_ns))
    until_ns = stage.now_ns + LOOKED_AT_S * SECOND
    while stage.now_ns < until_ns:
        stage.now_ns += SECOND
        more = True
        while more:
            result = stage.engine.cycle(stage.now_ns, 1_000)
            effects += unpack_effects(result.effects)
            more = result.more
    return effects
