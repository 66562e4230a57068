"""Whatever is submitted, configured and taken away again: applications end in leaves that may be, and all adds up."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import (
    ApplicationRef,
    ApplicationSpec,
    CommandRefused,
    RegisterManager,
    UpdateApplications,
    UpdateConfiguration,
)
from kornel.core.domain.effects import ApplicationAccepted, ApplicationRejected
from kornel.core.domain.names import RECOVERY_QUEUE, is_queue_name
from kornel.core.engine.engine import Engine
from kornel.core.model.queues import Queue
from kornel.core.state.books import audit
from kornel.core.state.partition_state import PartitionState
from tests.examples import scale_examples

PARTITION = "[rm]default"
SECOND = 10**9

NAMES = st.sampled_from(("a", "b", "p", "B", "x.y", "root", "@recovery@", "un!k", "n" * 65, "default", "\u212a"))
PATHS = st.one_of(
    st.just(""), NAMES, st.lists(NAMES, min_size=1, max_size=3).map(lambda names: ".".join(("root", *names)))
)
SIMPLE = st.fixed_dictionaries(
    {"name": st.sampled_from(("provided", "user", "tag", "fixed")), "create": st.booleans()},
    optional={"filter": st.sampled_from(({"type": "deny", "users": ["ann"]}, {"groups": ["dev"]}))},
)
ACCESS = st.sampled_from(("", "*", "ann", "bob dev"))
TEMPLATES = st.sampled_from((None, {"maxapplications": 3}, {"resources": {"max": {"vcore": 2, "gpu": 0}}}))
TAGS = st.dictionaries(
    st.sampled_from(("namespace", "Namespace", "namespace.resourcequota", "namespace.resourceguaranteed")),
    st.one_of(PATHS, st.sampled_from(('{"resources":{"vcore":{"value":5}}}', "{", ""))),
    max_size=3,
)
SPECS = st.tuples(PATHS, st.sampled_from(("ann", "bob", "a.b", "")), st.booleans(), TAGS)


def _valued(rule: dict[str, Any], value: str) -> dict[str, Any]:
    values = {"tag": "namespace", "fixed": value}
    return {**rule, **({"value": values[rule["name"]]} if rule["name"] in values else {})}


@st.composite
def configurations(draw: st.DrawFn) -> str:
    """Rules and a tree of two levels; some are refused, which has to leave everything as it was."""

    def queue(name: str, *children: dict[str, Any], parent: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"name": name, "submitacl": draw(ACCESS), "parent": parent}
        template = draw(TEMPLATES)
        if template is not None and parent:
            found["childtemplate"] = template
        return {**found, **({"queues": list(children)} if children else {})}

    rules = []
    for simple in draw(st.lists(SIMPLE, max_size=3)):
        rule = _valued(simple, draw(st.sampled_from(("b", "p.x", "root.p.y"))))
        if draw(st.booleans()) and not rule.get("value", "").startswith("root"):
            rule["parent"] = _valued(draw(SIMPLE), draw(st.sampled_from(("p", "root.p", "root.a"))))
        rules.append(rule)
    below = draw(st.lists(st.sampled_from("abp"), unique=True, max_size=2))
    leaves = [queue(name, parent=draw(st.booleans())) for name in below]
    names = draw(st.lists(st.sampled_from(("a", "p", "default")), unique=True, max_size=3))
    tops = [queue(name, *(leaves if name == "p" else ()), parent=name == "p") for name in names]
    partition = {"name": "default", "placementrules": rules, "queues": [queue("root", *tops, parent=True)]}
    return json.dumps({"partitions": [partition]})


def _check_tree(state: PartitionState) -> None:
    """Index and tree agree, every name is legal, and each kind of queue holds what it may hold."""
    reached: dict[str, Queue] = {}
    waiting = [state.root]
    while waiting:
        queue = waiting.pop()
        reached[queue.path] = queue
        waiting += queue.children.values()
        assert not (queue.children if queue.leaf else queue.applications), queue
        assert not (queue.draining and not queue.managed), f"{queue}: only managed queues drain"
        assert queue.managed or (queue.submit_acl.nobody and queue.admin_acl.nobody), queue
        assert queue.leaf or queue.dynamic_terms is not None, queue
        if queue.name == RECOVERY_QUEUE:
            assert queue.path == f"root.{RECOVERY_QUEUE}"
        elif not queue.managed:
            assert is_queue_name(queue.name), queue
            assert queue.name == queue.name.lower()
    assert reached == state.queues
    assert audit.check(state) == []


STEPS = st.lists(st.one_of(SPECS, st.integers(0, 30), configurations()), min_size=5, max_size=30)


@settings(max_examples=scale_examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(configurations(), STEPS)
def test_any_history(first: str, steps: list[Any]) -> None:
    """Submissions (tuples), removals and the passing of time (numbers), reloads (texts)."""
    engine, now_ns, added = Engine(), SECOND, 0
    try:
        engine.apply(RegisterManager("rm", first), now_ns)
    except ValueError:
        engine.apply(RegisterManager("rm", ""), now_ns)
    for step in steps:
        state = engine.partition(PARTITION)
        assert state is not None
        if isinstance(step, str):
            before = dict(state.queues)
            try:
                engine.apply(UpdateConfiguration("rm", step), now_ns)
            except (ValueError, CommandRefused):
                assert state.queues == before
        elif isinstance(step, int):
            now_ns += step * SECOND
            engine.apply(UpdateApplications("rm", (), (ApplicationRef(f"app{step}", PARTITION),)), now_ns)
            engine.cycle(now_ns, 100)
        else:
            _submit(engine, state, f"app{added}", step, now_ns)
            added += 1
        _check_tree(state)


def _submit(engine: Engine, state: PartitionState, name: str, step: tuple[Any, ...], now_ns: int) -> None:
    queue, user, forced, tags = step
    given_tags = {**tags, **({"application.create.force": "true"} if forced else {})}
    spec = ApplicationSpec(name, queue, PARTITION, user, (), tuple(given_tags.items()))
    before = dict(state.queues)
    (answer,) = engine.apply(UpdateApplications("rm", (spec,)), now_ns)
    if isinstance(answer, ApplicationAccepted):
        leaf = state.applications[name].queue
        assert leaf.leaf
        assert not leaf.draining
        assert state.queues[leaf.path] is leaf
        assert forced or leaf.name != RECOVERY_QUEUE
    else:
        assert isinstance(answer, ApplicationRejected)
        assert not forced, "running work always finds a place"
        assert state.queues == before, "a refusal makes no queue"


@settings(max_examples=scale_examples(300), deadline=None)
@given(st.text(max_size=90), st.text(max_size=40), st.booleans())
def test_any_text(queue: str, namespace: str, create: bool) -> None:
    """No text, however odd, makes a queue that could not have been configured."""
    rules = [
        {"name": "provided", "create": create},
        {"name": "tag", "value": "namespace", "create": True},
    ]
    partition = {"name": "default", "placementrules": rules, "queues": [{"name": "root", "submitacl": "*"}]}
    engine = Engine()
    engine.apply(RegisterManager("rm", json.dumps({"partitions": [partition]})), SECOND)
    state = engine.partition(PARTITION)
    assert state is not None
    _submit(engine, state, "app", (queue, "ann", False, {"namespace": namespace}), SECOND)
    _check_tree(state)
