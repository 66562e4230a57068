"""Whatever preemption wants: no window holds more than its budget, and no two queues go on taking from each other.

That the engine asks the book is in ``governor.txt`` and :mod:`tests.properties.test_pacing`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from kornel.core.domain.settings import Budget, GovernorSettings
from kornel.core.preemption.budgets import judge_losses
from kornel.core.state.records.governor_books import GovernorBooks, Loss
from tests.examples import scale_examples

WINDOW = 10


@dataclass(frozen=True)
class Wish:
    wait: int
    preemptor: str
    victims: tuple[tuple[str, str, int], ...]


wishes = st.lists(
    st.builds(
        Wish,
        st.integers(0, 4),
        st.sampled_from(["a", "b", "c", ""]),
        st.lists(
            st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"]), st.integers(0, 5)),
            min_size=1,
            max_size=3,
        ).map(tuple),
    ),
    max_size=40,
)


@settings(max_examples=scale_examples(200), deadline=None)
@given(wishes, st.integers(1, 6), st.integers(0, 12), st.integers(0, 5), st.integers(0, 2))
def test_victims_of_an_application_put_together_are_judged_as_one_by_one(
    asked: list[Wish], victims: int, lost: int, cooldown: int, returns: int
) -> None:
    """The same answer in the same words, with the same time to try again, whether or not the book drops entries."""
    budget = Budget(victims, {"f": lost} if lost else {})
    bounds = GovernorSettings({}, WINDOW, budget, budget, budget, cooldown, WINDOW, returns)
    each_books, sum_books = GovernorBooks(), GovernorBooks()
    now = 0
    for wish in asked:
        now += wish.wait
        each = [Loss(q, f"{q}{app}", ((0, n),)) for q, app, n in wish.victims]
        together: dict[tuple[str, str], Loss] = {}
        for one in each:
            before = together.get(one[:2], Loss(one.queue, one.application, ((0, 0),), 0))
            amount = before.lost[0][1] + one.lost[0][1]
            together[one[:2]] = Loss(one.queue, one.application, ((0, amount),), before.victims + 1)
        sums = list(together.values())
        each_books.drop_expired(bounds, WINDOW, now)
        answer = judge_losses(bounds, "f", each_books, each, wish.preemptor, now)
        assert judge_losses(bounds, "f", sum_books, sums, wish.preemptor, now) == answer
        if answer is None:
            each_books.book_losses(bounds, each, wish.preemptor, now)
            sum_books.book_losses(bounds, sums, wish.preemptor, now)


@settings(max_examples=scale_examples(200), deadline=None)
@given(wishes, st.integers(1, 6), st.integers(0, 12), st.integers(0, 5), st.integers(0, 2))
def test_no_window_holds_more_than_its_budget(
    asked: list[Wish], victims: int, lost: int, cooldown: int, returns: int
) -> None:
    """Reckoned anew from everything that was let through, for every window that ends with a decision."""
    budget = Budget(victims, {"f": lost} if lost else {})
    bounds = GovernorSettings({}, WINDOW, budget, budget, budget, cooldown, WINDOW, returns)
    books = GovernorBooks()
    now = 0
    taken: list[tuple[int, Loss]] = []
    turns: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for wish in asked:
        now += wish.wait
        losses = [Loss(q, f"{q}{app}", ((0, n),)) for q, app, n in wish.victims if q != wish.preemptor]
        books.drop_expired(bounds, WINDOW, now)
        if not losses or judge_losses(bounds, "f", books, losses, wish.preemptor, now) is not None:
            continue
        assert all(now - at >= cooldown for at, before in taken if before.queue in {loss.queue for loss in losses})
        books.book_losses(bounds, losses, wish.preemptor, now)
        taken += [(now, loss) for loss in losses]
        recent = [loss for at, loss in taken if at > now - WINDOW]
        for scope in ("", "queue", "application"):
            count = Counter(getattr(loss, scope) if scope else "all" for loss in recent)
            assert all(number <= victims for number in count.values())
            spent: Counter[str] = Counter()
            for loss in recent:
                spent[getattr(loss, scope) if scope else "all"] += loss.lost[0][1]
            assert not lost or all(amount <= lost for amount in spent.values())
        if wish.preemptor:
            for queue in {loss.queue for loss in losses}:
                pair = tuple(sorted((wish.preemptor, queue)))
                history = turns.setdefault(pair, [])
                history.append((now, wish.preemptor))
                seen = [who for at, who in history if at > now - WINDOW]
                assert sum(one != other for one, other in pairwise(seen)) <= returns
