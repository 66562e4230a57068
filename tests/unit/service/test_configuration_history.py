"""The history keeps what one may want to go back to, within bounds."""

from __future__ import annotations

from kornel.core.service.configuration.configuration_history import ConfigurationHistory, Origin, Version


def add(history: ConfigurationHistory, text: str, reason: str = "") -> Version:
    return history.add(at_ns=1, origin=Origin.UPDATE, rm_id="rm", text=text, checksum="C", reason=reason)


def numbers(history: ConfigurationHistory) -> list[int]:
    return [version.number for version in history.kept_versions()]


def test_numbers_and_what_is_in_force() -> None:
    """Numbers count everything, refused or not; only what was applied is in force."""
    history = ConfigurationHistory()
    assert history.get(0) is None
    add(history, "a")
    add(history, "b", reason="bad")
    assert numbers(history) == [1, 2]
    assert history.in_force == 1
    current, refused = history.get(0), history.get(2)
    assert current is not None
    assert refused is not None
    assert (current.number, current.applied) == (1, True)
    assert (refused.applied, refused.reason) == (False, "bad")
    assert history.get(3) is None


def test_the_oldest_are_forgotten_first_and_never_the_one_in_force() -> None:
    """Refusals push out older versions, but not the one that holds."""
    history = ConfigurationHistory(most_versions=3)
    add(history, "a")
    for number in range(5):
        add(history, str(number), reason="bad")
    assert numbers(history) == [1, 5, 6]
    add(history, "b")
    assert numbers(history) == [5, 6, 7]


def test_texts_are_bounded_together() -> None:
    """Long texts leave room for fewer versions; the newest and the one in force stay however long."""
    history = ConfigurationHistory(most_characters=10)
    for text in ("aaaa", "bbbb", "cccc"):
        add(history, text)
    assert numbers(history) == [2, 3]
    add(history, "d" * 100)
    assert numbers(history) == [4]
    add(history, "e" * 100, reason="bad")
    assert numbers(history) == [4, 5]


def test_somebody_who_insists() -> None:
    """The same refusal again is recognised; after anything else it is not."""
    history = ConfigurationHistory()
    add(history, "a", reason="bad")
    assert history.refused_last("a", "bad")
    assert not history.refused_last("a", "worse")
    add(history, "b")
    assert not history.refused_last("a", "bad")
