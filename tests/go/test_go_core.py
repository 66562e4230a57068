"""The program of tests/bench that measures YuniKorn's core beside ours."""

from __future__ import annotations

from tests.bench.ends import Case
from tests.bench.served_ends import GO_CORE, measure_go_core
from tests.go.toolchain import list_unformatted, run_go


def test_the_core_that_ours_is_compared_with() -> None:
    """An end gives room to one ask, whose allocation the program hears of."""
    assert not list_unformatted(GO_CORE)
    run_go(GO_CORE, "vet", "./...")
    found = measure_go_core(Case(2, 1), 5)
    assert found is not None
    assert found > 0
