"""Partitions that are built ahead of the registration they are for: nothing comes out differently."""

from __future__ import annotations

from typing import Any

from kornel.core.config.loader import load
from kornel.core.domain.commands import RegisterManager, UnregisterManager, UpdateConfiguration
from kornel.core.engine.engine import Engine
from kornel.core.telling.reader import Reader

TEXT = """
partitions:
  - name: default
    placementrules: [{name: provided, create: true}]
    limits: [{users: ["*"], maxapplications: 9}]
    preemption: {quotapreemptionenabled: true}
    queues:
      - name: root
        submitacl: "*"
        properties: {priority.offset: "3"}
        queues:
          - name: a
            resources: {guaranteed: {vcore: 2}, max: {vcore: 10, example.com/gpu: 4}}
            properties: {priority.policy: fence}
            childtemplate: {maxapplications: 3, resources: {max: {memory: 1G}}}
            queues:
              - name: b
                resources: {max: {vcore: 3}, quota.preemption.delay: 1s}
                limits: [{users: [ann], maxresources: {vcore: 1}}]
              - name: c
          - name: d
            maxapplications: 7
  - name: other
    queues: [{name: root, queues: [{name: x}]}]
"""
OTHER = TEXT.replace("name: c", "name: e")


def register(engine: Engine, text: str, *, ahead: bool, rm_id: str = "rm-1", now_ns: int = 7) -> list[Any]:
    configuration = load(text)
    if ahead:
        for _ in engine.build_ahead(rm_id, configuration):
            assert engine.cycle(now_ns, 10).effects == []
    engine.prepare_configuration(text, configuration)
    return engine.apply(RegisterManager(rm_id=rm_id, version="", policy_group="", config=text), now_ns)


def shown(engine: Engine) -> list[Any]:
    """Everything that a reader is told of the queues and of the whole."""
    partitions = Reader(engine).partitions()
    return [(reader.status(audited=True), list(reader.queues())) for reader in partitions]


def test_what_was_built_ahead_is_the_same() -> None:
    plain, ahead = Engine(), Engine()
    for engine in (plain, ahead):
        engine.record_events()
    for text in (TEXT, OTHER, TEXT):
        assert register(plain, text, ahead=False) == register(ahead, text, ahead=True)
        assert shown(plain) == shown(ahead)
        assert plain.next_wakeup_ns() == ahead.next_wakeup_ns()
        assert all(status.invariant_violations == 0 for status, _ in shown(ahead))


def test_nobody_sees_what_is_being_built() -> None:
    engine = Engine()
    register(engine, TEXT, ahead=False)
    before = shown(engine)
    for _ in engine.build_ahead("rm-1", load(OTHER)):
        assert shown(engine) == before


def test_what_was_built_for_nobody_is_let_go() -> None:
    """Given up half way, or for another text than the one that came: it is taken apart, since nobody else knows it."""
    plain, engine = Engine(), Engine()
    register(plain, TEXT, ahead=False)
    steps = engine.build_ahead("rm-1", load(OTHER))
    for _ in range(3):
        next(steps)
    steps.close()  # type: ignore[attr-defined]  # a generator
    for _ in engine.build_ahead("rm-1", load(OTHER)):
        pass
    register(engine, TEXT, ahead=False)
    assert shown(engine) == shown(plain)
    while engine.cycle(8, 250).more:
        pass
    assert not engine._remains
    assert not engine._built
    engine.apply(UpdateConfiguration(rm_id="rm-1", config=OTHER), 9)
    plain.apply(UpdateConfiguration(rm_id="rm-1", config=OTHER), 9)
    assert shown(engine) == shown(plain)


def test_queues_that_are_no_more_are_freed_one_by_one() -> None:
    """A parent does not keep those below it until it goes itself, with all of them at once."""
    engine = Engine()
    register(engine, TEXT, ahead=False)
    state = engine.partition("[rm-1]default")
    assert state is not None
    root = state.root
    del state
    engine.apply(UnregisterManager("rm-1"), 8)
    left = [len(root.children)]
    while engine.cycle(9, 1).more:
        left.append(len(root.children))
    assert left[0] == 2
    assert 1 in left
    assert not root.children
