"""The sentences a scenario may state."""

from __future__ import annotations

import pytest

from kornel.shim_mock.expectations import Expectation, Kind, parse_expectation


@pytest.mark.parametrize(
    ("text", "expectation"),
    [
        (
            "queue root.prod reaches guaranteed within 5s",
            Expectation(Kind.REACHES_GUARANTEED, "root.prod", within_s=5.0),
        ),
        ("queue root.batch never below guaranteed", Expectation(Kind.NEVER_BELOW_GUARANTEED, "root.batch")),
        ("all pods placed within 500ms", Expectation(Kind.ALL_PLACED, within_s=0.5)),
        ("preempted at least 3 from root.batch", Expectation(Kind.PREEMPTED_AT_LEAST, "root.batch", 3)),
        (
            "preempted at least 3 from root.batch within 9s",
            Expectation(Kind.PREEMPTED_AT_LEAST, "root.batch", 3, within_s=9.0),
        ),
        ("preempted at most 0 from root.batch", Expectation(Kind.PREEMPTED_AT_MOST, "root.batch", 0)),
        ("queue root.batch ends within max", Expectation(Kind.ENDS_WITHIN_MAX, "root.batch")),
        ("noticed at least 2 from root.batch", Expectation(Kind.NOTICED_AT_LEAST, "root.batch", 2)),
        ("application N survives 5 preemptions", Expectation(Kind.SURVIVES, count=5, application="N")),
        ("application etl fails", Expectation(Kind.FAILS, application="etl")),
        ("no law violations", Expectation(Kind.NO_LAW_VIOLATIONS)),
        ("nothing lost", Expectation(Kind.NOTHING_LOST)),
    ],
)
def test_sentences_are_read_and_written_back(text: str, expectation: Expectation) -> None:
    """Every sentence is understood, and an expectation prints as a sentence that means the same."""
    assert parse_expectation(text) == expectation
    assert parse_expectation(str(expectation)) == expectation


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no expectation"),
        ("everything is fine", "known: queue QUEUE reaches"),
        ("queue root.prod reaches guaranteed", "no expectation"),
        ("queue root.prod reaches guaranteed within soon", "invalid duration"),
        ("queue root.prod reaches guaranteed within -5s", "negative"),
        ("preempted at least three from root.batch", "not a whole number"),
        ("preempted at most -1 from root.batch", "outside"),
        ("no law violations please", "no expectation"),
    ],
)
def test_other_sentences_are_refused(text: str, reason: str) -> None:
    """A sentence outside the set is refused, and the refusal lists the set."""
    with pytest.raises(ValueError, match=reason):
        parse_expectation(text)
