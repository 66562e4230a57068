"""Every question has an answer, and what is foretold comes true."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kornel.core.domain.commands import (
    AllocationSpec,
    ApplicationSpec,
    Command,
    CommandRefused,
    NodeAction,
    NodeSpec,
    RegisterManager,
    ReleaseSpec,
    UpdateAllocations,
    UpdateApplications,
    UpdateConfiguration,
    UpdateNodes,
)
from kornel.core.domain.effects import Allocated, ApplicationAccepted, ApplicationRejected, PreemptionDecided
from kornel.core.domain.reasons import Outcome
from kornel.core.domain.resources import Resources
from kornel.core.engine.engine import Engine
from kornel.core.state.options import EngineOptions
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.allocations.explanation import AskReport, Blocker, Level, Report
from kornel.core.telling.explain import FirstBlockers, Named
from kornel.core.telling.reader import Reader
from kornel.core.telling.what_if.supposition import (
    Forecast,
    Placed,
    Preempts,
    SupposeAsk,
    SupposeNodeLost,
    SupposePriority,
    SupposeQuota,
    Supposition,
    Waits,
)
from tests.driven_core import DrivenCore
from tests.examples import scale_examples
from tests.properties.limited_shim import LimitedShim
from tests.properties.machine import driver  # noqa: F401  (it knows all rules)
from tests.properties.machine.cluster import VARIANTS
from tests.properties.machine.cluster import configuration as machine_configuration
from tests.properties.machine.dice import Dice
from tests.properties.machine.registry import RULES
from tests.properties.machine.world import World
from tests.properties.shim import PARTITION, RM, SECOND, Shim, random_history, size
from tests.reading import read
from tests.supposing import suppose
from tests.unit.partition.graph import digest


def trace(engine: Engine) -> str:
    """All that *engine* holds but its table of handlers, which only refers to it."""
    return digest({name: held for name, held in vars(engine).items() if name != "_handlers"})


def questions(state: PartitionState, dice: random.Random) -> Iterator[Supposition]:
    """A few of each kind, sensible or not."""
    leaves = [queue.path for queue in state.queues.values() if queue.leaf] or [state.root.path]
    for _ in range(3):
        named = dice.choice([*state.applications, ""])
        single = SupposeAsk(
            size(dice.randint(1, 9), dice.randint(0, 9)),
            dice.choice(leaves),
            named if dice.random() < 0.5 else "",
            dice.choice([1, 2, 5]),
            dice.randint(-1, 2),
            required_node=dice.choice([*state.nodes, "nowhere"]) if dice.random() < 0.2 else "",
            user=dice.choice(["ann", "bob", ""]),
            groups=("staff",),
        )
        yield single
        yield single._replace(application_id="", gang=True)
    yield from (SupposeNodeLost(node_id) for node_id in state.nodes)
    for path in dice.sample([*state.queues], min(3, len(state.queues))):
        most = dice.choice([None, 0, dice.randint(1, 20)])
        yield SupposeQuota(path, {"vcore": most}, {"memory": dice.choice([None, 3])})
    for key in dice.sample([*state.requests], min(3, len(state.requests))):
        yield SupposePriority(key, dice.randint(-2, 3))
    yield SupposeAsk(size(1, 1), "root.made.here", user="eve")


@settings(max_examples=scale_examples(40), deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["plain", "gangs", "limits"]), length=st.integers(5, 80))
def test_every_question_has_an_answer(seed: int, kind: str, length: int) -> None:
    """Whatever happened before, or it is refused; explanations leave no trace."""
    shim = LimitedShim(seed % 24) if kind == "limits" else Shim(seed % 24, gangs=kind == "gangs")
    shim.engine.record_events()
    dice = random.Random(seed)
    for number, operation in enumerate(random_history(seed, length)):
        shim.perform(operation)
        if number % 3:
            shim.settle()
    reader = Reader(shim.engine, lambda: shim.now_ns)
    for question in questions(shim.state, dice):
        with suppress(CommandRefused):
            suppose(reader[PARTITION], question)
    before = trace(shim.engine)
    for name in [*shim.state.requests, *shim.state.applications, "nobody"]:
        report = reader[PARTITION].explain(Named(name))
        assert (report is None) == (name == "nobody")
    keys = [key for key, request in shim.state.requests.items() if request.pending]
    firsts = reader[PARTITION].explain(FirstBlockers(tuple(keys)))
    assert firsts == tuple(first_of(reader[PARTITION].explain(Named(key))) for key in keys)
    assert trace(shim.engine) == before
    shim.settle()


def first_of(report: Report | None) -> Blocker | None:
    """What comes first in *report*, which names everything; of obstacles on nodes the one on most of those that could
    hold the ask."""
    assert isinstance(report, AskReport)
    if report.blockers and report.blockers[0].level is Level.NODE:
        never = ("node-too-small", "node-without-devices", "no-nodes")
        return max(report.blockers, key=lambda blocker: (blocker.permanent, blocker.kind not in never, blocker.nodes))
    return report.blockers[0] if report.blockers else None


@settings(max_examples=scale_examples(30), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_question_has_an_answer_beside_callbacks_and_drains(seed: int) -> None:
    """The same where the shim is asked about nodes and victims, operators drain nodes, and partitions come and go."""
    source = random.Random(seed)
    world, dice = World(), Dice.seeded(source)
    world.engine.record_events()
    world.send(RegisterManager(RM, machine_configuration(source.randrange(VARIANTS))))
    for number, rule in enumerate(source.choices(RULES, [rule.weight for rule in RULES], k=200)):
        rule.perform(world, dice)
        if number % 50 != 49:
            continue
        reader = Reader(world.engine, lambda: world.now_ns)
        before = trace(world.engine)
        for name in world.engine.partition_names():
            state = world.engine.partition(name)
            assert state is not None
            for question in source.sample([*questions(state, source)], 3):
                with suppress(CommandRefused):
                    suppose(reader[name], question)
            for key in [*state.requests, *state.applications]:
                reader[name].explain(Named(key))
            assert trace(world.engine) == before
    world.remove_everything()


class Cluster(DrivenCore):
    """A random cluster at rest: nodes partly taken, guarantees that invite preemption, nobody waiting.

    *waiting*: some asks wait all the same, that may have nobody leave; or with *preempting* half may, and nobody
    saves room by age. *limited*: users and applications are limited. *drained*: some nodes take no new work any more.
    """

    def __init__(
        self,
        seed: int,
        *,
        waiting: bool = False,
        preempting: bool = False,
        limited: bool = False,
        drained: bool = False,
    ) -> None:
        self.dice = dice = random.Random(seed)
        self.waits = waiting
        self._guaranteed = [
            {"vcore": dice.randint(2, 8), "memory": dice.randint(2, 8)} if dice.random() < 0.8 else {} for _ in range(4)
        ]
        self._max = [{"vcore": dice.randint(9, 20)} if dice.random() < 0.4 else {} for _ in range(4)]
        self._offsets = [dice.choice([0, 0, 1]) for _ in range(4)]
        self._policy = dice.choice(["fair", "binpacking"])
        self._limits = (
            limited
            and f"maxapplications: {dice.randint(1, 3)}, limits: [{{limit: l, users: ['*'], \
maxresources: {{vcore: {dice.randint(2, 9)}}}}}], "
        )
        engine = Engine(EngineOptions(reservation_delay_ns=None)) if preempting else None
        super().__init__(self.configuration(), rm_id=RM, engine=engine)
        for number in range(dice.randint(1, 5)):
            self.node(f"n{number}", amounts(dice.randint(4, 8), 8))
        for number in range(4):
            self.application(f"app{number}", f"root.q{number}", "ann")
        for number in range(dice.randint(0, 30)):
            application = f"app{dice.choice([0, 1, 1, 2])}"
            wanted = amounts(dice.randint(1, 3), dice.randint(1, 3))
            self.ask(
                f"k{number}",
                application,
                wanted,
                dice.randint(0, 1),
                may_preempt=not waiting or (preempting and dice.random() < 0.5),
            )
            self.cycle()
        for node_id in [*self.state.nodes] if drained else ():
            if dice.random() < 0.2:
                self.node(node_id, action=NodeAction.DRAIN_NODE)
        if not waiting:
            # Who found no place goes again, so that nobody else waits.
            for ask in [request for request in self.state.requests.values() if request.pending]:
                release = ReleaseSpec(PARTITION, ask.application.application_id, ask.key)
                self.apply(UpdateAllocations(RM, ask_releases=(release,)))
            self.cycle()
        else:
            for half_seconds in range(200):
                self.now_ns = half_seconds * SECOND // 2
                self.cycle()

    def configuration(
        self, number: int = -1, most: dict[str, int] | None = None, owed: dict[str, int] | None = None
    ) -> str:
        """The configuration; with a *number* that of this queue has another max and guarantee."""
        leaves = []
        for at in range(4):
            guaranteed = owed if at == number and owed is not None else self._guaranteed[at]
            maximum = most if at == number and most is not None else self._max[at]
            resources = json.dumps({"guaranteed": guaranteed, "max": maximum})
            offset = f"priority.offset: '{self._offsets[at]}'"
            leaves.append(
                f"{{name: q{at}, {self._limits or ''}properties: {{preemption.delay: 10s, {offset}}},"
                f" resources: {resources}}}"
            )
        return (
            f"partitions: [{{name: default, nodesortpolicy: {{type: {self._policy}}}, queues:"
            f" [{{name: root, submitacl: '*', queues: [{', '.join(leaves)}]}}]}}]"
        )

    def ask(self, key: str, application: str, wanted: Resources, priority: int, *, may_preempt: bool = True) -> None:
        self.submit(application, [key], wanted, priority=priority, allow_preempt_other=may_preempt)

    def suppose(self, question: Supposition, now_ns: int) -> Forecast:
        """What is foretold."""
        return suppose(read(self.engine, PARTITION, now_ns), question)

    def carry_out(self, commands: Sequence[Command], now_ns: int) -> Happened:
        """What happens after *commands* at *now_ns* until all delays are over, before victims are replaced."""
        happened = Happened([], [])
        self.now_ns = now_ns
        for command in commands:
            self.apply(command)
        # In small steps, as the core would be called.
        while self.now_ns <= now_ns + 10 * SECOND + SECOND // 2:
            for effect in self.cycle():
                if isinstance(effect, Allocated):
                    happened.placed.append((effect.spec.key, effect.node_id))
                elif isinstance(effect, PreemptionDecided) and effect.outcome is Outcome.TRIGGERED:
                    victims = [victim.key for victim in effect.victims]
                    happened.preempted.append((effect.key, effect.node_id, victims))
            self.now_ns += SECOND // 2
        return happened


class Happened(NamedTuple):
    """Who was placed where, and who had whom leave for room on which node."""

    placed: list[tuple[str, str]]
    preempted: list[tuple[str, str, list[str]]]


def foretold(forecast: Forecast) -> Happened:
    """*forecast* in the same form."""
    return Happened(
        [(found.key, found.node_id) for found in forecast.placed],
        [(p.key, p.node_id, [victim.key for victim in p.victims]) for p in forecast.preempts],
    )


def comes_true(forecast: Forecast, happened: Happened) -> None:
    """All that is foretold happens, and if the search was not cut short nothing else does."""
    expected = foretold(forecast)
    assert happened.placed == expected.placed
    if forecast.complete:
        assert happened.preempted == expected.preempted
    else:
        assert happened.preempted[: len(expected.preempted)] == expected.preempted


def amounts(vcore: int, memory: int) -> Resources:
    return Resources({"vcore": vcore * 1000, "memory": memory})


@settings(max_examples=scale_examples(150), deadline=None)
@given(seed=st.integers(0, 2**32))
# Each has more asks than nodes that age may keep free.
@example(2766229848)
@example(2782665064)
@example(4200520859)
@example(3300259428)
def test_what_is_foretold_of_a_gang_comes_true(seed: int) -> None:
    """The same asks are placed on the same nodes, and the same victims leave for the same asks, in the same order."""
    cluster = Cluster(seed)
    dice, now_ns = cluster.dice, 100 * SECOND
    number = dice.randrange(4)
    resources, priority = amounts(dice.randint(1, 4), dice.randint(1, 3)), dice.randint(0, 2)
    question = SupposeAsk(resources, f"root.q{number}", asks=dice.choice([1, 1, 2, 3]), priority=priority, user="ann")
    forecast = cluster.suppose(question, now_ns)
    cluster.application("what-if", f"root.q{number}", "ann")
    happened = cluster.carry_out((asks_of(question, "what-if"),), now_ns)
    comes_true(forecast, happened)
    waiting = question.asks - len(happened.placed) - len(forecast.preempts)
    assert sum(found.asks for found in forecast.waits) == waiting


class GuardedCluster(Cluster):
    """A cluster that ann may use, and others as access lists, placement rules with filters and a template say."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(-seed)
        allowed = dice.sample(["ann", "eve", "bob"], dice.randint(1, 3))
        rules = [
            {"name": "provided", "create": dice.random() < 0.5, "filter": {"type": "allow", "users": ["ann", *allowed]}}
        ]
        rules += dice.sample(
            [
                {"name": "user", "create": dice.random() < 0.7, "parent": {"name": "fixed", "value": "root.users"}},
                {"name": "fixed", "value": "root.q1", "filter": {"type": "deny", "groups": ["staff"]}},
                {"name": "fixed", "value": "root.users.shared", "create": True},
            ],
            dice.randint(0, 2),
        )
        template = {
            "maxapplications": dice.randint(1, 2),
            "resources": {"max": {"vcore": dice.randint(1, 9)}, "guaranteed": {"vcore": 1}},
            "properties": {"application.sort.policy": dice.choice(["fifo", "fair"]), "preemption.delay": "10s"},
        }
        submit = dice.choice(["*", "eve", " staff"])
        users = {"name": "users", "parent": True, "submitacl": submit, "childtemplate": template}
        self._lists = [dice.choice(["bob", "eve staff", "*", ""]) for _ in range(4)]
        self._rules, self._users = json.dumps(rules), json.dumps(users)
        super().__init__(seed, limited=dice.random() < 0.6, drained=True, waiting=dice.random() < 0.3)

    def configuration(self, *others: Any) -> str:
        text = super().configuration(*others).replace("submitacl: '*'", "submitacl: 'ann'")
        for number, users in enumerate(self._lists):
            text = text.replace(f"{{name: q{number}, ", f"{{name: q{number}, submitacl: '{users}', ")
        text = text.replace("{name: default, ", f"{{name: default, placementrules: {self._rules}, ")
        return text.replace("queues: [{name: q0", f"queues: [{self._users}, {{name: q0")


@settings(max_examples=scale_examples(1000), deadline=None)
@given(seed=st.integers(0, 2**32))
@example(8)  # A gang is too large.
@example(18)  # The user holds as much as he may.
@example(56)  # A gang may not start, because its user has as many applications as he may.
def test_what_is_foretold_of_a_submission_comes_true(seed: int) -> None:
    """It is rejected in the same words, or enters the same leaf, new or not, and its asks or its gang go where the
    forecast says."""
    cluster = GuardedCluster(seed)
    dice, now_ns = random.Random(seed + 1), 100 * SECOND
    question = SupposeAsk(
        amounts(dice.randint(1, 4), dice.randint(1, 3)),
        dice.choice([*(f"root.q{at}" for at in range(4)), "root.users", "root.users.eve", "root.no", "q1", ""]),
        asks=dice.choice([1, 2, 3, 5]),
        priority=dice.randint(0, 2),
        user=dice.choice(["ann", "ann", "ann", "eve", "bob", "carl", "no user"]),
        groups=dice.choice([(), ("staff",)]),
        gang=dice.random() < 0.4,
    )
    forecast = cluster.suppose(question, now_ns)
    together = {name: amount * question.asks for name, amount in question.resources.items()}
    spec = ApplicationSpec("what-if", question.queue, PARTITION, question.user, question.groups)
    if question.gang:
        spec = spec._replace(gang_style="Hard", placeholder_ask=Resources(together))
    (answer,) = cluster.engine.apply(UpdateApplications(RM, (spec,)), now_ns)
    if isinstance(answer, ApplicationRejected):
        assert forecast == Forecast(rejected=answer.reason)
        return
    assert isinstance(answer, ApplicationAccepted)
    everybody: list[Placed | Preempts | Waits] = [*forecast.placed, *forecast.preempts, *forecast.waits]
    assert {found.queue for found in everybody} == {answer.queue}
    happened = cluster.carry_out((asks_of(question, "what-if"),), now_ns)
    if cluster.waits:
        # Somebody's claim may lapse, and an ask find room before its victims have left.
        sooner = {found.key for found in forecast.preempts}
        happened = happened._replace(placed=[each for each in happened.placed if each[0] not in sooner])
    if question.gang:
        happened = Happened(sorted(happened.placed), sorted(each for each in happened.preempted if each[2]))
        preempts = [each for each in forecast.preempts if each.victims]
        forecast = forecast._replace(placed=tuple(sorted(forecast.placed)), preempts=tuple(sorted(preempts)))
    comes_true(forecast, happened)


def asks_of(question: SupposeAsk, application: str) -> UpdateAllocations:
    """The asks of *question* as a shim would send them."""
    return UpdateAllocations(
        RM,
        tuple(
            AllocationSpec(
                f"what-if-{at + 1}", application, PARTITION, question.resources, question.priority,
                required_node=question.required_node, allow_preempt_other=question.allow_preempt_other,
                task_group="what-if" if question.gang else "", placeholder=question.gang,
            )
            for at in range(question.asks)
        ),
    )  # fmt: skip


@settings(max_examples=scale_examples(100), deadline=None)
@given(seed=st.integers(0, 2**32))
# The victim for the first of three asks is enough for the second, but not for the third.
@example(8815)
def test_what_is_foretold_of_an_application_comes_true(seed: int) -> None:
    """It is a live one, of a user with limits; its asks may have to run on one node."""
    cluster = Cluster(seed, limited=True)
    dice, now_ns = cluster.dice, 100 * SECOND
    question = SupposeAsk(
        amounts(dice.randint(1, 4), dice.randint(1, 3)),
        application_id=f"app{dice.randrange(4)}",
        asks=dice.choice([1, 1, 2, 3]),
        priority=dice.randint(0, 2),
        required_node=dice.choice([*cluster.state.nodes, "", ""]),
    )
    forecast = cluster.suppose(question, now_ns)
    comes_true(forecast, cluster.carry_out((asks_of(question, question.application_id),), now_ns))


@settings(max_examples=scale_examples(100), deadline=None)
@given(seed=st.integers(0, 2**32), waiting=st.booleans())
# What one has leave makes its queue wait for another one's ask.
@example(221, False)
# Those that hold room by age are served before all others.
@example(3305, False)
@example(20000285, False)
# An ask that waited at the max of its queue saves what the lost node leaves there.
@example(1238, True)
def test_what_is_foretold_of_a_lost_node_comes_true(seed: int, waiting: bool) -> None:
    """What ran there is lost and asked for again: that and what waits already goes where the forecast says."""
    cluster = Cluster(seed, waiting=waiting)
    now_ns = 100 * SECOND
    lost = cluster.dice.choice([*cluster.state.nodes])
    forecast = cluster.suppose(SupposeNodeLost(lost), now_ns)
    node = cluster.state.nodes[lost]
    specs = tuple(allocation.spec._replace(node_id="") for allocation in node.allocations.values())
    assert forecast.displaced == tuple(spec.key for spec in specs)
    decommission = UpdateNodes(RM, (NodeSpec(lost, NodeAction.DECOMISSION, PARTITION),))
    saved = {claim.ask.key for claim in cluster.state.reserving.saved if claim.node is not node}
    happened = cluster.carry_out((decommission, UpdateAllocations(RM, specs)), now_ns)
    passed = saved - {claim.ask.key for claim in cluster.state.reserving.saved} - {key for key, _ in happened.placed}
    if not passed:  # Once they are old enough, those before them in the line take their room, which is not foretold.
        comes_true(forecast, happened)


@settings(max_examples=scale_examples(100), deadline=None)
@given(seed=st.integers(0, 2**32))
@example(98)  # Memory that is not guaranteed any more keeps nobody from preempting.
def test_what_is_foretold_of_a_quota_comes_true(seed: int) -> None:
    """Who waits is placed, or has others leave, as the forecast says once the queue is configured so."""
    cluster = Cluster(seed, waiting=True, preempting=seed % 2 == 0, drained=True)
    dice, now_ns = cluster.dice, 100 * SECOND
    number = dice.randrange(4)
    most, owed = {"vcore": dice.randint(9, 40)}, {"vcore": dice.randint(1, 9)}
    question = SupposeQuota(
        f"root.q{number}",
        {name: amount * 1000 for name, amount in most.items()},
        {"memory": None, **{name: amount * 1000 for name, amount in owed.items()}},
    )
    forecast = cluster.suppose(question, now_ns)
    changed = UpdateConfiguration(RM, cluster.configuration(number, most, owed))
    happened = cluster.carry_out((changed,), now_ns)
    if all(victims for _, _, victims in happened.preempted):  # Else room of victims passed on, which is not foretold.
        comes_true(forecast._replace(preempts=tuple(each for each in forecast.preempts if each.victims)), happened)


@settings(max_examples=scale_examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_is_foretold_of_a_priority_comes_true(seed: int) -> None:
    """An ask with another priority goes where it goes when the shim asks for it with that priority."""
    cluster = Cluster(seed, drained=True)
    dice, now_ns = cluster.dice, 100 * SECOND
    resources = amounts(dice.randint(2, 4), dice.randint(1, 3))
    cluster.now_ns = now_ns
    cluster.ask("late", "app3", resources, -5)
    cluster.cycle()
    if not cluster.state.requests["late"].pending:
        return
    forecast = cluster.suppose(SupposePriority("late", 2), now_ns)
    raised = AllocationSpec("late", "app3", PARTITION, resources, 2, allow_preempt_other=True)
    comes_true(forecast, cluster.carry_out((UpdateAllocations(RM, (raised,)),), now_ns))
