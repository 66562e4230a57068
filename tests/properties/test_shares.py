"""What users and originators may hold in a leaf: the engine places exactly what the words allow, one task after the
other, and nobody waits who may run (config.md 10.5, 10.6)."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kornel.core.model.leaf_accounts import ShareAccount
from tests.examples import scale_examples
from tests.oracles.plain_shares import Leaf, Task
from tests.scenarios.stage import Stage

KINDS = ("vcore", "memory")
USERS = ("ann", "bob", "eve", "joe")
STEPS = st.lists(st.tuples(st.integers(0, 9), *[st.integers(0, 9_999)] * 4), min_size=3, max_size=25)
AMOUNTS = st.fixed_dictionaries({kind: st.integers(4, 30) for kind in KINDS})
PARTS = st.sampled_from(["", "10%", "25%", "33.3%", "50%", "vcore: 3m", "{vcore: 4m, memory: 6}"])


def read_originators(text: str) -> Fraction | dict[str, int] | None:
    if not text:
        return None
    if text.endswith("%"):
        return Fraction(text[:-1]) / 100
    return {kind: int(amount) for kind, amount in re.findall(r"(\w+): (\d+)", text)}


def write(amounts: dict[str, int]) -> str:
    return " ".join(f"{kind}={amount}" for kind, amount in amounts.items())


def make(most: dict[str, int], guaranteed: dict[str, int], percent: int, factor: str, part: str) -> tuple[Leaf, Stage]:
    """A leaf and the core that serves it."""
    guaranteed = {kind: min(amount, most[kind]) for kind, amount in guaranteed.items() if amount}
    leaf = Leaf(guaranteed, most, percent, Fraction(factor) if factor else None, read_originators(part))
    text = f"queue root.a max={{{write(most).replace(' ', ',')}}} minimum-user-limit-percent={percent}"
    text += f" guaranteed={{{write(guaranteed).replace(' ', ',')}}}" if guaranteed else ""
    text += f" user-limit-factor={factor}" if factor else ""
    text += f' originator.max="{part}"' if part else ""
    stage = Stage()
    stage.play([text, "node n1 vcore=1000 memory=1000", *(f"app {user} queue=root.a user={user}" for user in USERS)])
    return leaf, stage


def follow(leaf: Leaf, answers: list[str]) -> None:
    """Each placement is one that the limits allow at its moment."""
    for line in answers:
        if found := re.fullmatch(r"allocate (\S+) on n1", line):
            refusal = leaf.refusal(found[1])
            assert not refusal, f"{found[1]} was placed against {refusal}"
            leaf.tasks[found[1]].runs = True


@pytest.mark.parametrize("placing", ["one by one", "together"])
@settings(max_examples=scale_examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    most=AMOUNTS,
    guaranteed=st.fixed_dictionaries({kind: st.integers(0, 20) for kind in KINDS}),
    percent=st.sampled_from([0, 10, 25, 50, 100]),
    factor=st.sampled_from(["", "", "0.5", "1", "1.5"]),
    part=PARTS,
    steps=STEPS,
)
def test_users_and_originators_get_what_the_words_say(
    placing: str,
    most: dict[str, int],
    guaranteed: dict[str, int],
    percent: int,
    factor: str,
    part: str,
    steps: list[tuple[int, ...]],
) -> None:
    leaf, stage = make(most, guaranteed, percent, factor, part)
    for number, (what, who, vcore, memory, extra) in enumerate(steps):
        if what < 7 or not leaf.tasks:
            name, user = f"k{number}", USERS[who % len(USERS)]
            amounts = {"vcore": 1 + vcore % 5, "memory": memory % 5}
            task = leaf.tasks[name] = Task(user, amounts, originator=not extra % 3)
            lines = [f"ask {name} app={user} {write(task.amounts)}{' originator' if task.originator else ''}"]
        else:
            name = list(leaf.tasks)[who % len(leaf.tasks)]
            task = leaf.tasks.pop(name)
            lines = [f"{'release' if task.runs else 'withdraw'} {name} app={task.user}"]
        follow(leaf, stage.play(lines))
        if placing == "one by one" or number % 4 == 3:
            follow(leaf, stage.play(["cycle"]))
            waiting = [name for name, task in leaf.tasks.items() if not task.runs]
            assert not [name for name in waiting if not leaf.refusal(name)], "somebody waits who may run"


@pytest.mark.parametrize("users", [2, 60])
def test_an_end_under_a_factor_has_one_user_looked_at(users: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a factor allows does not change with what others hold, however many of them wait."""
    stage, looks = Stage(), list[str]()
    stage.play(["queue root.a max={vcore=100} user-limit-factor=0.01", "node n1 vcore=1000"])
    for number in range(users):
        stage.play(
            [f"app a{number} queue=root.a user=u{number}", *(f"ask {k}{number} app=a{number} vcore=1" for k in "xy")]
        )
    stage.play(["cycle"])
    admits = ShareAccount.admits

    def look(account: ShareAccount, *rest: Any) -> bool:
        looks.append(account.name)
        return admits(account, *rest)

    monkeypatch.setattr(ShareAccount, "admits", look)
    monkeypatch.setattr(stage, "_check", lambda: None)  # The audit looks at everybody.
    stage.play(["release x0 app=a0", "cycle"])
    assert stage.state.requests["y0"].node is not None
    assert {*looks} == {"u0"}


OWN = "queue root.own guaranteed={vcore=8,memory=8} preemption.delay=1s"
EVENTS = st.lists(st.tuples(st.integers(0, 19), *[st.integers(0, 9_999)] * 3), min_size=10, max_size=40)
LIMITS = ("", "originator.max=25%", "minimum-user-limit-percent=25", "user-limit-factor=0.5 originator.max=50%",
          "minimum-user-limit-percent=1 user-limit-factor=1.5", 'originator.max="vcore: 2m, memory: 5"')  # fmt: skip

# fmt: off
INHERITS_TWICE = [
    (16, 447, 3946, 13), (15, 3841, 7923, 96), (13, 5466, 186, 295), (4, 5, 2883, 1399), (19, 192, 180, 249),
    (6, 9106, 1272, 3422), (9, 4532, 435, 853), (14, 1251, 314, 3392), (14, 6133, 1403, 3054), (0, 1379, 423, 242),
    (8, 71, 860, 2496), (15, 24, 447, 79), (6, 9998, 245, 9999), (13, 1522, 339, 164), (11, 869, 7805, 2082),
    (8, 1644, 38, 1849), (18, 4134, 84, 212), (19, 2596, 2, 98), (10, 9169, 4160, 619), (6, 18, 1461, 387),
    (9, 624, 453, 64),
    (2, 4368, 935, 6243), (13, 9998, 123, 961), (8, 1644, 38, 1849), (8, 1486, 2576, 1803), (15, 3841, 7923, 96),
    (6, 18, 1461, 387),
]
REARRANGED = [
    (13, 519, 341, 334), (16, 391, 244, 362), (14, 487, 6658, 303), (6, 429, 482, 4899), (3, 170, 710, 203),
    (6, 650, 273, 166), (8, 329, 149, 9998), (13, 288, 1530, 611), (13, 2174, 482, 3469), (16, 391, 244, 362),
    (2, 1333, 67, 3148), (5, 2936, 296, 169), (14, 1192, 9063, 5745), (16, 1275, 9732, 628), (11, 674, 2689, 648),
    (10, 0, 364, 159), (15, 381, 267, 1802), (13, 1550, 351, 6921), (3, 7115, 1847, 667), (0, 565, 5774, 255),
    (7, 9999, 916, 4955), (13, 67, 264, 355), (8, 329, 149, 9998), (15, 515, 119, 1759),
]
# fmt: on
"""In the first, an ask for which tasks leave takes over a claim: those who left for it before stay its victims. In the
second, the monitor puts the places on a node into another order: what a holder saves there serves none before it."""


def configure(number: int, monitor: str) -> list[str]:
    most = ("", " max={vcore=12}", " max={memory=9}")[number // len(LIMITS) % 3]
    return [f"partition default {monitor}", f"{OWN}{most} {LIMITS[number % len(LIMITS)]}", "queue root.other"]


@settings(max_examples=scale_examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(monitor="", events=INHERITS_TWICE)
@example(monitor='monitor="{}"', events=REARRANGED)
@given(monitor=st.sampled_from(["", 'monitor="{}"', 'coexist=on monitor="{}"']), events=EVENTS)
def test_books_and_laws_hold_whatever_comes(monitor: str, events: list[tuple[int, ...]]) -> None:
    """Tasks that come, grow, end and preempt, a node and limits that change: the stage audits each step, and no plan
    breaks a law."""
    stage, now = Stage(), 0
    stage.play([*configure(events[0][1], monitor), "node n1 vcore=12 memory=12", "app other queue=root.other user=zoe"])
    stage.play([f"app {user} queue=root.own user={user}" for user in USERS])
    stage.play([f"ask t{number} app=other vcore=1 memory=1" for number in range(12)])
    for number, (what, who, size, extra) in enumerate(events):
        user, live = USERS[who % len(USERS)], list(stage.state.requests.values())
        amounts = f"vcore={1 + size % 4} memory={size % 3}"
        if what < 9:
            flag = " originator" if extra % 3 == 0 else ""
            lines = [f"ask k{number} app={user} {amounts} p={extra % 2} other=yes{flag}"]
        elif what < 11:
            lines = [f"run k{number} app={user} node=n1 vcore=1{' originator' if extra % 2 else ''}"]
        elif what < 13 and live:
            request = live[who % len(live)]
            verb = "withdraw" if request.node is None else "release"
            lines = [f"{verb} {request.spec.key} app={request.application.application_id}"]
        elif what == 13 and live:
            request = live[who % len(live)]
            lines = [f"resize-ask {request.spec.key} app={request.application.application_id} {amounts}"]
        elif what == 14:
            lines = [*configure(who, monitor), "update-config"]
        elif what == 15:
            lines = [f"resize n1 vcore={6 + size % 12} memory={6 + extra % 12}"]
        else:
            now += 1 + size % 7
            lines = [f"cycles until={now}s every=1s{' leaving' if extra % 3 else ''}"]
        stage.play(lines)
    stage.play([f"cycles until={now + 20}s every=1s leaving"])
    assert not stage.state.law_violations
