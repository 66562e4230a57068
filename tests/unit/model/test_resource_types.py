"""Which types get an index of their own, which share one, and which index goes to somebody else."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from kornel.core.domain.resources import MAX_TYPES, Resources
from kornel.core.model.shapes import ASKED_TYPES, OTHER_TYPES, ResourceTypes, TooManyTypes

WIDTHS: list[int] = []


def types_of(*offered: str, wanted: set[int] | None = None) -> ResourceTypes:
    """Types of which *offered* are; *wanted*: indexes that asks wait for. By default they wait for all."""
    types = ResourceTypes(WIDTHS.append, (lambda t: t in wanted) if wanted is not None else lambda _: True)
    for name in offered:
        types.index_of(name)
    return types


def made_up(count: int) -> list[str]:
    return [f"made-up-{number}" for number in range(count)]


def test_what_asks_alone_name_is_no_offered_type() -> None:
    types = types_of("vcore")
    shape = types.shape_of(Resources({"vcore": 1, "gpu": 2}))
    assert shape.pairs == ((0, 1), (1, 2))
    assert types.offered == 1
    assert types.find_unoffered(["gpu", "vcore", "gpu"]) == ["gpu"]


def test_an_offered_type_keeps_the_index_that_asks_know_it_by() -> None:
    types = types_of("vcore")
    shape = types.shape_of(Resources({"gpu": 2}))
    assert types.index_of("gpu") == shape.pairs[0][0]
    assert types.offered == 2
    assert not types.find_unoffered(["gpu"])
    assert types.shape_of(Resources({"gpu": 2})) is shape


def test_made_up_types_share_an_index_and_leave_all_others_free() -> None:
    """A thousand types in asks: no node and no configuration is refused for them."""
    types = types_of("vcore")
    for name in made_up(MAX_TYPES):
        types.shape_of(Resources({"vcore": 1, name: 7}))
    assert len(types.names) == 1 + ASKED_TYPES + 1
    assert types.names[-1] == OTHER_TYPES
    last = types.shape_of(Resources({"vcore": 1, "made-up-1000": 7}))
    assert last.pairs == ((0, 1), (1 + ASKED_TYPES, 1))
    assert last.others == ("made-up-1000",)
    for number in range(MAX_TYPES - 1):
        types.index_of(f"real-{number}")
    with pytest.raises(TooManyTypes):
        types.index_of("one-too-many")


def test_many_types_of_one_ask_do_not_take_each_others_index() -> None:
    types = types_of("vcore", wanted=set())
    shape = types.shape_of(Resources(dict.fromkeys(made_up(ASKED_TYPES + 3), 5)))
    assert len(shape.others) == 3
    assert len({t for t, _ in shape.pairs}) == ASKED_TYPES + 1
    again = types.shape_of(Resources({"another": 1}))
    assert not again.others


def test_a_type_that_nobody_waits_for_gives_its_index_to_another() -> None:
    wanted = set(range(1, ASKED_TYPES + 1))
    types = types_of("vcore", wanted=wanted)
    shapes = [types.shape_of(Resources({name: 7})) for name in made_up(ASKED_TYPES)]
    wanted.remove(4)
    types.to_resources([0, 0, 0, 0, 9])
    new = types.shape_of(Resources({"gpu": 1}))
    assert new.pairs == ((4, 1),)
    assert types.names[4] == "gpu"
    assert dict(types.to_resources([0, 0, 0, 0, 9])) == {"gpu": 9}
    assert types.known_index("made-up-3") is None
    assert types.shape_of(Resources({"made-up-3": 7})) is not shapes[3]
    assert types.shape_of(Resources({"made-up-4": 7})) is shapes[4]


def test_demands_behind_a_type_that_is_offered_now_are_told() -> None:
    types = types_of("vcore")
    for name in made_up(ASKED_TYPES):
        types.shape_of(Resources({name: 7}))
    waits = types.shape_of(Resources({"vcore": 1, "gpu": 2}))
    other = types.shape_of(Resources({"vcore": 1, "tpu": 2}))
    types.index_of("gpu")
    assert types.forget_shapes_with(["gpu"]) == [waits]
    now = types.shape_of(Resources({"vcore": 1, "gpu": 2}))
    assert not now.others
    assert (types.known_index("gpu"), 2) in now.pairs
    assert types.shape_of(Resources({"vcore": 1, "tpu": 2})) is other


def test_more_than_there_may_be_is_refused_whole() -> None:
    types = types_of(*[f"real-{number}" for number in range(MAX_TYPES - 2)])
    with pytest.raises(TooManyTypes, match="3 are new, 2 may be"):
        types.check(["a", "b", "a", "c", "real-0"])
    types.check(["a", "b", "a"])
    with pytest.raises(TooManyTypes, match="1 are new, 0 may be"):
        types.check(["a"], leaving=100)
    assert types.offered == MAX_TYPES - 2


def test_what_is_not_in_use_is_given_back() -> None:
    types = types_of("vcore", "gpu", "memory")
    gone, kept = types.shape_of(Resources({"gpu": 1})), types.shape_of(Resources({"vcore": 1}))
    types.to_resources([0, 4, 0])
    types.give_back(lambda t: t != 1)
    assert types.offered == 2
    assert types.known_index("gpu") is None
    assert types.index_of("tpu") == 1
    assert dict(types.to_resources([0, 4, 0])) == {"tpu": 4}
    assert types.shape_of(Resources({"vcore": 1})) is kept
    assert types.shape_of(Resources({"gpu": 1})) is not gone


def test_a_copy_goes_by_the_same_indexes() -> None:
    types = types_of("vcore", "gpu", "memory")
    for name in made_up(ASKED_TYPES + 1):
        types.shape_of(Resources({name: 7}))
    types.give_back(lambda t: t != 1)
    copy = types_of()
    copy.adopt_types(types.known_now())
    assert copy.names == types.names
    assert copy.offered == types.offered == 2
    assert copy.index_of("new") == types.index_of("new") == 1
    assert not copy.shape_of(Resources({"made-up-0": 7})).others
    assert copy.shape_of(Resources({"made-up-new": 7})).others


def test_demands_that_nobody_has_are_forgotten() -> None:
    types = types_of("vcore")
    shapes = [types.shape_of(Resources({"vcore": amount, "gpu": 1})) for amount in range(1, 9)]
    types.keep_only(shapes[:2])
    assert list(types.known_shapes().values()) == shapes[:2]
    assert types.shape_of(Resources({"vcore": 1, "gpu": 1})) is shapes[0]
    assert types.shape_of(Resources({"vcore": 8, "gpu": 1})) is not shapes[7]


@pytest.mark.long
@pytest.mark.parametrize("letter", ["x", "\N{GREEK SMALL LETTER PI}", "\N{GOTHIC LETTER AHSA}"])
@pytest.mark.parametrize(("count", "length"), [(1, 8), (10, 40), (300, 20), (300, 1_000)])
def test_demands_take_no_more_than_their_estimated_size(count: int, length: int, letter: str) -> None:
    """Their texts count, and names of letters that take four bytes each; six times as much would be no estimate."""
    types = types_of("vcore")

    def make_demand(first: int) -> None:
        names = [f"{number}-".ljust(length, letter) for number in range(count)]
        amounts = {name: 2**40 + first + number for number, name in enumerate(names)}
        types.shape_of(Resources(amounts)).write_lack()

    make_demand(0)
    before = types.made_bytes
    gc.collect()
    tracemalloc.start(1)
    try:
        for number in range(1, 21):
            make_demand(number * 1_000)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    estimated = types.made_bytes - before
    assert taken <= estimated <= 6 * taken
