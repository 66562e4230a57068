"""The governor's judgement on plain values: budgets, pauses, loops, and when to try again (preemption.md K13)."""

from __future__ import annotations

import pytest

from kornel.core.domain.reasons import Outcome
from kornel.core.domain.settings import Budget, GovernorSettings
from kornel.core.preemption.budgets import Denial, judge_losses
from kornel.core.state.records.governor_books import CLUSTER, GovernorBooks, Loss, Scope

S = 10**9
NAMES = ("f", "g")
NO_LIMIT = Budget()


def limits(
    *,
    cluster: Budget = NO_LIMIT,
    queue: Budget = NO_LIMIT,
    application: Budget = NO_LIMIT,
    cooldown_s: int = 0,
    loop_s: int = 0,
    returns: int = 0,
) -> GovernorSettings:
    return GovernorSettings({}, 60 * S, cluster, queue, application, cooldown_s * S, loop_s * S, returns)


def loss(queue: str = "v", application: str = "app", **lost: int) -> Loss:
    return Loss(queue, application, tuple((NAMES.index(name), amount) for name, amount in lost.items()))


def after(bounds: GovernorSettings, *taken: tuple[int, Loss]) -> GovernorBooks:
    books = GovernorBooks()
    for at_s, victim in taken:
        books.book_losses(bounds, [victim], "", at_s * S)
    return books


@pytest.mark.parametrize(
    ("bounds", "taken", "wanted", "expected"),
    [
        (limits(), [(0, loss())] * 9, [loss()] * 99, None),
        (limits(cluster=Budget(3)), [(0, loss())], [loss()] * 2, None),
        (limits(cluster=Budget(3)), [(0, loss())], [loss()] * 3, (CLUSTER, 60)),
        (limits(cluster=Budget(3)), [(0, loss()), (7, loss())], [loss()] * 3, (CLUSTER, 67)),
        (limits(cluster=Budget(3)), [], [loss()] * 4, (CLUSTER, None)),
        (limits(queue=Budget(1)), [(0, loss("w"))], [loss("v")], None),
        (limits(queue=Budget(1)), [(5, loss("v"))], [loss("w"), loss("v")], (Scope("queue", "v"), 65)),
        (limits(application=Budget(1)), [(5, loss())], [loss("w")], (Scope("application", "app"), 65)),
        (limits(queue=Budget(0, {"f": 10})), [(5, loss(f=4))], [loss(f=6, g=99)], None),
        (limits(queue=Budget(0, {"f": 10})), [(5, loss(f=4))], [loss(f=7)], (Scope("queue", "v"), 65)),
        (limits(queue=Budget(0, {"g": 10})), [(1, loss(f=9)), (2, loss(g=9))], [loss(g=2)], (Scope("queue", "v"), 62)),
    ],
)
def test_budgets(
    bounds: GovernorSettings,
    taken: list[tuple[int, Loss]],
    wanted: list[Loss],
    expected: tuple[Scope, int | None] | None,
) -> None:
    """What is wanted on top of what the window holds; denied, the time at which enough has left the window."""
    denial = judge_losses(bounds, NAMES, after(bounds, *taken), wanted, "a", 10 * S)
    if expected is None:
        assert denial is None
    else:
        scope, retry_s = expected
        assert denial is not None
        assert (denial.outcome, denial.scope) == (Outcome.BUDGET_SPENT, scope)
        assert denial.retry_ns == (None if retry_s is None else retry_s * S)


def test_the_numbers_are_told() -> None:
    """A denial names scope, demand, what was taken, the budget and the window."""
    bounds = limits(queue=Budget(2))
    denial = judge_losses(bounds, NAMES, after(bounds, (0, loss())), [loss(), loss()], "a", S)
    assert denial is not None
    assert denial.detail == "queue v: 2 victims wanted, 1 of 2 taken within 60 s"


def test_a_budget_counts_up_to_its_last_unit_and_forgets_on_the_second() -> None:
    """The window is half open: at its end the oldest victim counts no more."""
    bounds = limits(queue=Budget(1))
    books = after(bounds, (0, loss()))
    assert judge_losses(bounds, NAMES, books, [loss()], "a", 60 * S - 1) is not None
    assert judge_losses(bounds, NAMES, books, [loss()], "a", 60 * S) is None


def test_parts_of_one_decision_do_not_cool_each_other_down() -> None:
    """The batches of one run are one decision; the next run has to wait."""
    bounds = limits(cooldown_s=30)
    books = GovernorBooks()
    run = object()
    books.book_losses(bounds, [loss()], "", 0, run)
    assert judge_losses(bounds, NAMES, books, [loss()], "", S, run) is None
    denial = judge_losses(bounds, NAMES, books, [loss()], "", S, object())
    assert denial is not None
    assert (denial.outcome, denial.retry_ns) == (Outcome.COOLING_DOWN, 30 * S)


@pytest.mark.parametrize(
    ("turns", "returns", "now_s", "retry_s"),
    [
        ([("a", 0)], 0, 1, None),
        ([("b", 0)], 0, 1, 100),
        ([("b", 0)], 1, 1, None),
        ([("a", 0), ("b", 5)], 1, 9, 100),
        ([("a", 0), ("a", 4), ("b", 5)], 1, 9, 104),
        ([("a", 0), ("b", 5)], 2, 9, None),
        ([("b", 0), ("a", 3), ("b", 5)], 1, 9, 103),
        ([("a", 0), ("b", 5)], 1, 100, None),
    ],
)
def test_loops(turns: list[tuple[str, int]], returns: int, now_s: int, retry_s: int | None) -> None:
    """Queue a wants to take from b after these turns; more returns than allowed within 100 s are denied."""
    bounds = limits(loop_s=100, returns=returns)
    books = GovernorBooks()
    for preemptor, at_s in turns:
        books.book_losses(bounds, [loss("b" if preemptor == "a" else "a")], preemptor, at_s * S)
    denial = judge_losses(bounds, NAMES, books, [loss("b")], "a", now_s * S)
    assert (None if denial is None else (denial.outcome, denial.retry_ns)) == (
        None if retry_s is None else (Outcome.LOOP, retry_s * S)
    )


def test_nothing_is_remembered_for_ever() -> None:
    """When all windows have passed, the books are as new, whatever names came by."""
    bounds = limits(cluster=Budget(9, {"f": 5}), cooldown_s=5, loop_s=5)
    books = GovernorBooks()
    for number in range(50):
        books.book_losses(bounds, [loss(f"q{number}", f"app{number}", f=1)], "a", number * S)
    books.drop_expired(bounds, S, 1000 * S)
    assert contents(books) == contents(GovernorBooks())


def contents(books: GovernorBooks) -> dict[str, object]:
    return {
        **vars(books),
        "lately": books.lately.totals,
        "interval": books.interval.totals,
        "taken": books.lately.taken,
    }


def test_a_denial_is_plain_text_and_time() -> None:
    """Denials compare as values."""
    assert Denial(Outcome.LOOP, CLUSTER, "", 1) == Denial(Outcome.LOOP, Scope("cluster"), "", 1)
