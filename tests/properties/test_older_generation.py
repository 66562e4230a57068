"""Several allocations under one key, against a model that knows only what protocol.md 3.4 says of them."""

from __future__ import annotations

from itertools import count, islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.allocation_ids import allocation_id
from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, Effect, Released
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.state.books import audit

PARTITION = "[rm]default"
CONFIG = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
KEYS = ("k", "k-0", "k-1")
APPLICATION = "app"

keys = st.sampled_from(KEYS)
small = st.integers(0, 5)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), keys, st.integers(1, 5), small),
        st.tuples(st.just("cycle"), keys, small, small),
        st.tuples(st.just("end one"), keys, small, small),
        st.tuples(st.just("end key"), keys, small, small),
        st.tuples(st.just("withdraw"), keys, small, small),
        st.tuples(st.just("report"), keys, small, small),
        st.tuples(st.just("lose node"), keys, small, small),
    ),
    max_size=40,
)


class Model:
    """Each key with its live instances, and the node each runs on."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.live: dict[str, dict[int, str | None]] = {key: {} for key in KEYS}
        self.sizes: dict[tuple[str, int], int] = {}
        self._nodes = count()
        self._send(RegisterManager("rm", CONFIG))
        self.node = self._new_node()
        self._send(UpdateApplications("rm", (ApplicationSpec(APPLICATION, "root.a", PARTITION, user="u"),)))

    def perform(self, kind: str, key: str, number: int, other: int) -> None:
        live = self.live[key]
        pending = [instance for instance, node in live.items() if node is None]
        running = sorted(instance for instance, node in live.items() if node is not None)
        if kind == "ask":
            wanted = max(0, number - len(running))
            kept = sorted(pending)[:wanted]
            free = (instance for instance in count() if instance not in live)
            added = list(islice(free, wanted - len(kept)))
            self.live[key] = {**dict.fromkeys(kept + added), **{instance: live[instance] for instance in running}}
            self.sizes.update({(key, instance): other + 1 for instance in kept + added})
            self._send(self._specs(key, size=other + 1, legacy=True, max_allocations=number, priority=other % 2))
        elif kind == "cycle":
            self._hear(self.engine.cycle(1, 1000).effects)
        elif kind == "end one":
            # An ID that names nothing live may still be a key.
            if number in live:
                live.pop(number)
            elif (whole := allocation_id(key, number)) in self.live:
                self._end_key(whole)
            self._send(self._release(allocation_id=allocation_id(key, number)))
        elif kind == "end key":
            self._end_key(key)
            self._send(self._release(key))
        elif kind == "withdraw":
            for instance in pending:
                del live[instance]
            self._send(UpdateAllocations("rm", ask_releases=(ReleaseSpec(PARTITION, APPLICATION, key),)))
        elif kind == "report":
            if live.get(number) is None:
                live[number] = self.node
                self.sizes.setdefault((key, number), 1)
            self.sizes[key, number] = 1
            self._send(self._specs(key, size=1, node_id=self.node, instance=number))
        else:
            for instances in self.live.values():
                for instance in [i for i, node in instances.items() if node == self.node]:
                    del instances[instance]
            self._send(UpdateNodes("rm", (NodeSpec(self.node, NodeAction.DECOMISSION, PARTITION),)))
            self.node = self._new_node()

    def check(self) -> None:
        state = self.engine.partition(PARTITION)
        assert state is not None
        assert audit.check(state) == []
        held = {
            (r.spec.key, r.spec.instance): (r.node and r.node.node_id, r.shape.resources["vcore"])
            for r in state.requests.values()
        }
        assert held == {
            (key, instance): (node, self.sizes[key, instance])
            for key, instances in self.live.items()
            for instance, node in instances.items()
        }

    def _end_key(self, key: str) -> None:
        live = self.live[key]
        running = {instance for instance, node in live.items() if node is not None}
        self.live[key] = {} if not running else {i: node for i, node in live.items() if i not in running}

    def _specs(self, key: str, *, size: int, node_id: str = "", **fields: Any) -> UpdateAllocations:
        spec = AllocationSpec(key, APPLICATION, PARTITION, Resources({"vcore": size}), node_id=node_id)
        return UpdateAllocations("rm", (spec._replace(**fields),))

    def _release(self, key: str = "", allocation_id: str = "") -> UpdateAllocations:
        spec = ReleaseSpec(PARTITION, APPLICATION, key, allocation_id=allocation_id)
        return UpdateAllocations("rm", releases=(spec,))

    def _new_node(self) -> str:
        name = f"n{next(self._nodes)}"
        self._send(UpdateNodes("rm", (NodeSpec(name, NodeAction.CREATE, PARTITION, capacity=Resources({"vcore": 9})),)))
        return name

    def _send(self, command: RegisterManager | UpdateNodes | UpdateApplications | UpdateAllocations) -> None:
        self._hear(self.engine.apply(command, 1))

    def _hear(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Allocated):
                self.live[effect.spec.key][effect.spec.instance] = effect.node_id
            elif isinstance(effect, Released):
                assert effect.instance not in self.live[effect.key], f"{effect} names what should be there"


@settings(deadline=None)
@given(operations)
def test_each_key_has_what_was_asked_for(history: list[tuple[str, str, int, int]]) -> None:
    """After every step the engine holds exactly the instances, places and sizes that the model has."""
    model = Model()
    for operation in history:
        model.perform(*operation)
        model.check()
