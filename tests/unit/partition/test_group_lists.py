"""How many groups may come with one application."""

from __future__ import annotations

import pytest

from kornel.core.domain.commands import ApplicationSpec
from kornel.core.engine.intake.application_intake import _refuse_lengths


@pytest.mark.parametrize(("groups", "refused"), [(2_000, False), (2_001, True)])
def test_more_groups_than_a_directory_hands_out_are_refused(groups: int, refused: bool) -> None:
    spec = ApplicationSpec("app", "root.a", "[rm]default", "u", tuple(f"g{number}" for number in range(groups)))
    said = _refuse_lengths(spec)
    assert (said is not None) is refused
    assert said is None or said == "name-too-long: the list of groups has 2,001 entries, at most 2,000"
