"""Several allocations under one key, against a model that knows only what protocol.md 3.4 says of them."""

from __future__ import annotations

from itertools import count, islice

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.allocation_ids import allocation_id
from kornel.core.domain.commands import Command, NodeAction, ReleaseSpec, UpdateAllocations
from kornel.core.domain.effects import Allocated, Effect, Released
from kornel.core.state.books import audit
from tests.driven_core import DrivenCore

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


class Model(DrivenCore):
    """Each key with its live instances, and the node each runs on."""

    def __init__(self) -> None:
        self.live: dict[str, dict[int, str | None]] = {key: {} for key in KEYS}
        self.sizes: dict[tuple[str, int], int] = {}
        self._nodes = count()
        super().__init__(CONFIG, now_ns=1)
        self.newest = self._new_node()
        self.application(APPLICATION, "root.a")

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
            about = {"legacy": True, "max_allocations": number, "priority": other % 2}
            self.submit(APPLICATION, [key], {"vcore": other + 1}, **about)
        elif kind == "cycle":
            self._hear(self.engine.cycle(1, 1000).effects)
        elif kind == "end one":
            # An ID that names nothing live may still be a key.
            if number in live:
                live.pop(number)
            elif (whole := allocation_id(key, number)) in self.live:
                self._end_key(whole)
            self._end(allocation_id=allocation_id(key, number))
        elif kind == "end key":
            self._end_key(key)
            self._end(key)
        elif kind == "withdraw":
            for instance in pending:
                del live[instance]
            self.apply(UpdateAllocations(self.rm_id, ask_releases=(ReleaseSpec(self.partition, APPLICATION, key),)))
        elif kind == "report":
            if live.get(number) is None:
                live[number] = self.newest
                self.sizes.setdefault((key, number), 1)
            self.sizes[key, number] = 1
            self.submit(APPLICATION, [key], {"vcore": 1}, node_id=self.newest, instance=number)
        else:
            for instances in self.live.values():
                for instance in [i for i, node in instances.items() if node == self.newest]:
                    del instances[instance]
            self.node(self.newest, action=NodeAction.DECOMISSION)
            self.newest = self._new_node()

    def check(self) -> None:
        assert audit.check(self.state) == []
        held = {
            (r.spec.key, r.spec.instance): (r.node and r.node.node_id, r.shape.resources["vcore"])
            for r in self.state.requests.values()
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

    def _end(self, key: str = "", allocation_id: str = "") -> None:
        spec = ReleaseSpec(self.partition, APPLICATION, key, allocation_id=allocation_id)
        self.apply(UpdateAllocations(self.rm_id, releases=(spec,)))

    def _new_node(self) -> str:
        name = f"n{next(self._nodes)}"
        self.node(name, {"vcore": 9})
        return name

    def apply(self, command: Command) -> list[Effect]:
        effects = super().apply(command)
        self._hear(effects)
        return effects

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
