"""Over any window of one interval preemption takes no more than it may, whatever path asks; unlisted kinds do nothing.

Settings and paths are random: the allocation cycle, rounds, asks with a node kept by age, required nodes, lowered
maxima, with and without a shim that is asked first. What was taken is reckoned from the decisions alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import AnswerCallbacks, PredicatesAnswer, PreemptionPredicatesAnswer, TerminationType
from kornel.core.domain.effects import Effect, PredicatesAsked, PreemptionDecided, PreemptionPredicatesAsked, Released
from kornel.core.domain.reasons import Outcome
from tests.examples import scale_examples
from tests.scenarios.language import RM
from tests.scenarios.stage import Stage

KINDS = ("required-node", "quota", "guarantee", "monitor")
MS = 10**6


@dataclass
class Terms:
    """What is configured, as numbers. A bound of 0: any number."""

    limit: float
    interval_ms: int
    policies: tuple[str, ...]
    ask: dict[str, int]
    interval: dict[str, int]
    cluster: dict[str, int] = field(default_factory=dict)


@dataclass
class Decision:
    """One decision that made victims leave."""

    at_ns: int
    kind: str
    served: dict[str, int]
    victims: int


class Shim:
    """A cluster full of tasks of one queue, and asks of others that want their guarantees, or a node."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        self.stage = Stage()
        listed = KINDS if rng.random() < 0.6 else tuple(kind for kind in KINDS if rng.random() < 0.6)
        self.terms = Terms(
            limit=rng.choice([0.0, 0.1, 0.25, 0.5, 1.0]),
            interval_ms=rng.choice([200, 1000, 3000]),
            policies=listed,
            ask={"guarantee": rng.choice([0, 1, 2, 128]), "required-node": rng.choice([0, 1, 2])},
            interval={kind: rng.choice([0, 1, 3, 1000]) for kind in KINDS[:3]},
        )
        self.decisions: list[Decision] = []
        self.told = 0
        """How many were told to leave, by whatever decision."""
        self.sizes: dict[str, dict[str, int]] = {}
        self.leaving: list[tuple[str, str]] = []
        self.questions: list[Effect] = []
        self.number = 0
        self._set_up()

    def configuration(self, most: int) -> list[str]:
        """All of it, with *most* as the max of what runs."""
        terms = self.terms
        victims = ", ".join(
            f"{kind}: {{interval: {terms.interval[kind]}"
            + (f", ask: {terms.ask[kind]}" if kind in terms.ask else "")
            + "}"
            for kind in terms.interval
        )
        cycle = f"limit={terms.limit} interval_ms={terms.interval_ms} batch=2"
        policies, governor = ", ".join(terms.policies), f"{{victims: {{{victims}}}, loop: {{window_ms: 0}}}}"
        return [
            f'partition quota=on {cycle} policies="[{policies}]" governor="{governor}"',
            f"queue root.v max={{f={most},gpu=100}} quota.preemption.delay=1",
            "queue root.a guaranteed={f=40,gpu=4} preemption.delay=1ms",
            "queue root.b guaranteed={f=10} preemption.delay=3s",
            "queue root.d",
        ]

    def _set_up(self) -> None:
        rng, stage = self.rng, self.stage
        stage.play(self.configuration(1000))
        self.terms.cluster = {"f": 0, "gpu": 0}
        if rng.random() < 0.5:
            # Room where nothing may be placed: without it nobody has a node kept by age.
            stage.play(["node spare f=9 gpu=4 draining"])
            self._grow(9, 4)
        for number in range(rng.randint(2, 5)):
            room, cards = rng.randint(2, 6), rng.randint(0, 2)
            stage.play([f"node n{number} f={room} gpu={cards}"])
            self._grow(room, cards)
            while room:
                size = rng.randint(1, min(2, room))
                room -= size
                card, cards = (1, cards - 1) if cards else (0, 0)
                self.number += 1
                gpu = f"gpu={card}" if card else ""
                stage.play([f"run v{self.number} queue=root.v node=n{number} f={size} {gpu} created={self.number}s"])
        self.nodes = number + 1
        if rng.random() < 0.4:
            stage.play([f"attach {rng.choice(['', 'predicates '])}victims timeout=2s"])

    def _grow(self, room: int, cards: int) -> None:
        self.terms.cluster["f"] += room
        self.terms.cluster["gpu"] += cards

    def step(self) -> None:
        """One thing that can happen, or time."""
        rng, stage = self.rng, self.stage
        what = rng.random()
        if what < 0.25:
            self.ask(rng.choice(["a", "a", "a", "b"]))
        elif what < 0.32:
            self.ask("d", f"required=n{rng.randrange(self.nodes)} p=9")
        elif what < 0.38:
            stage.play([*self.configuration(rng.randint(1, 12)), "update-config"])
        elif what < 0.55:
            stage.now_ns += rng.choice([1, 50, 200, 500, 1000, 5000]) * MS
        elif what < 0.7:
            self.hear(stage.engine.preempt(stage.now_ns))
        elif what < 0.8:
            self.answer()
        elif what < 0.85:
            self.confirm(rng.randint(1, 3))
        else:
            self.hear(stage.engine.cycle(stage.now_ns, rng.choice([1, 50, 1000])).effects)

    def ask(self, queue: str, more: str = "") -> None:
        """A new ask of *queue*."""
        self.number += 1
        size = {"f": self.rng.randint(1, 3)}
        if self.rng.random() < 0.2:
            size["gpu"] = 1
        key = f"{queue}{self.number}"
        self.sizes[key] = size
        amounts = " ".join(f"{t}={amount}" for t, amount in size.items())
        self.stage.play([f"ask {key} queue=root.{queue} {amounts} other=yes {more}"])

    def answer(self) -> None:
        """What the shim was asked is answered: yes, for the most part."""
        asked, self.questions = self.questions, []
        nodes, victims = [], []
        for question in asked:
            if isinstance(question, PredicatesAsked):
                refused = tuple((name, "no") for name in question.node_ids if self.rng.random() < 0.1)
                nodes.append(PredicatesAnswer(question.question, refused))
            elif isinstance(question, PreemptionPredicatesAsked):
                victims.append(PreemptionPredicatesAnswer(question.question, True, question.start_index))
        self.hear(self.stage.engine.apply(AnswerCallbacks(RM, tuple(nodes), tuple(victims)), self.stage.now_ns))

    def confirm(self, most: int) -> None:
        """Some of those told to leave have left."""
        gone, self.leaving = self.leaving[:most], self.leaving[most:]
        for key, application in gone:
            self.stage.play([f"release {key} app={application} type=PREEMPTED_BY_SCHEDULER"])

    def hear(self, effects: list[Effect]) -> None:
        """Note what was decided, and hold it against what was decided before."""
        for effect in effects:
            if isinstance(effect, Released) and effect.termination is TerminationType.PREEMPTED_BY_SCHEDULER:
                self.leaving.append((effect.key, effect.application_id))
                self.told += 1
            elif isinstance(effect, PredicatesAsked | PreemptionPredicatesAsked):
                self.questions.append(effect)
            elif isinstance(effect, PreemptionDecided) and (
                effect.victims and (effect.outcome is Outcome.TRIGGERED or effect.kind == "quota")
            ):
                self.judge(Decision(effect.at_ns, effect.kind, self.sizes.get(effect.key, {}), len(effect.victims)))

    def judge(self, decision: Decision) -> None:
        """*decision* against the window of one interval that ends with it."""
        terms, kind = self.terms, decision.kind
        assert kind in terms.policies, f"{kind} is not listed"
        since_ns = decision.at_ns - terms.interval_ms * MS
        window = [d for d in self.decisions if d.kind == kind and d.at_ns > since_ns]
        taken, most = sum(d.victims for d in window), terms.interval.get(kind, 0)
        if kind == "quota":
            assert not most or taken + decision.victims <= most
        else:
            # Tested before an attempt: the last one may exceed it by its own result.
            assert not most or taken < most
            assert not terms.ask[kind] or decision.victims <= terms.ask[kind]
        if kind == "guarantee":
            assert terms.limit > 0
            for t in decision.served:
                served = sum(d.served.get(t, 0) for d in window)
                assert served < terms.limit * terms.cluster[t] or not terms.cluster[t], (t, served, terms)
        self.decisions.append(decision)

    def settle(self, seconds: int) -> None:
        """Time passes, the shim answers and confirms at once."""
        for _ in range(10 * seconds):
            self.stage.now_ns += 100 * MS
            for _ in range(3):
                while True:
                    result = self.stage.engine.cycle(self.stage.now_ns, 1000)
                    self.hear(result.effects)
                    if not result.more:
                        break
                self.answer()
                self.confirm(1000)


def played(seed: int) -> Shim:
    """A run of a few dozen steps, and what comes of it when time passes."""
    shim = Shim(seed)
    for _ in range(60):
        shim.step()
    shim.settle(8)
    return shim


@settings(max_examples=scale_examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_no_window_takes_more_than_it_may(seed: int) -> None:
    """Judged decision by decision; and nobody leaves without one."""
    shim = played(seed)
    assert shim.told == sum(decision.victims for decision in shim.decisions)


@settings(max_examples=scale_examples(30), deadline=None)
@given(st.integers(0, 2**32))
def test_nobody_held_back_is_forgotten(seed: int) -> None:
    """The window moves on, so at rest the limit stands against nobody, unless it lets nobody preempt at all."""
    shim = played(seed)
    shim.settle(40)
    state = shim.stage.state
    if shim.terms.limit:
        waiting = [ask for ask in state.requests.values() if ask.pending]
        assert not [ask for ask in waiting if ask.outcome is Outcome.ROUND_LIMIT]
    assert not any(state.governor.waiting.values())


@pytest.mark.long
def test_the_runs_reach_what_they_are_about() -> None:
    """Every kind decides something, every bound stands against somebody, and each path is taken."""
    kinds: set[str] = set()
    outcomes: set[str] = set()
    reserved = asked = 0
    for seed in range(60):
        shim = played(seed)
        kinds |= {decision.kind for decision in shim.decisions}
        state = shim.stage.state
        outcomes |= {str(ask.outcome) for ask in state.requests.values()}
        asked += state.callbacks.preemption_predicates
        reserved += state.reserving.aged
    assert kinds >= {"guarantee", "required-node", "quota"}
    assert outcomes >= {"ROUND_LIMIT", "VICTIM_LIMIT", "POLICY_OFF", "TRIGGERED"}
    assert asked
    assert reserved
