"""What is never answered is counted: one cause for each entry that had no effect (protocol.md 15)."""

from __future__ import annotations

import pytest

from kornel.core.domain.reasons import Ignored
from kornel.core.engine.engine import Engine
from tests.reading import status_of
from tests.scenarios.stage import Stage

CASES = [
    (Ignored.UNKNOWN_NODE, "resize n9 vcore=1", "n9"),
    (Ignored.UNKNOWN_NODE, "drain n9", "n9"),
    (Ignored.UNKNOWN_NODE, "undrain n9", "n9"),
    (Ignored.UNKNOWN_NODE, "decommission n9", "n9"),
    (Ignored.UNKNOWN_ACTION, "node n1 action=0", "n1"),
    (Ignored.UNKNOWN_ACTION, "node n9 action=99", "n9"),
    (Ignored.INVALID_RESOURCE, "resize n1 vcore=-1", "n1"),
    (Ignored.NO_CHANGE, "undrain n1", "n1"),
    (Ignored.UNKNOWN_APPLICATION, "remove-app app9", "app9"),
    (Ignored.UNKNOWN_APPLICATION, "release k app=app9", "app9"),
    (Ignored.UNKNOWN_APPLICATION, "withdraw k app=app9", "app9"),
    (Ignored.UNKNOWN_KEY, "release z", "z"),
    (Ignored.UNKNOWN_KEY, "release - id=z-3", "z-3"),
    (Ignored.UNKNOWN_KEY, "release many id=many-9", "many-9"),
    (Ignored.UNKNOWN_KEY, "release z type=PREEMPTED_BY_SCHEDULER", "z"),
    (Ignored.UNKNOWN_KEY, "release-foreign z", "z"),
    (Ignored.UNKNOWN_KEY, "withdraw z", "z"),
    (Ignored.UNKNOWN_KEY, "withdraw k", "k"),
    (Ignored.INVALID_DEVICES, "resize n1 attr.kornel.devices=nonsense", "n1"),
    (Ignored.OTHER_NODE, "run k node=n2", "k"),
    (Ignored.NO_CHANGE, "run k node=n1", "k"),
    (Ignored.NO_CHANGE, "ask k", "k"),
    (Ignored.NO_CHANGE, "ask p vcore=99000", "p"),
    (Ignored.NO_CHANGE, "ask many legacy maxallocations=2", "many"),
    (Ignored.NO_CHANGE, "release * app=idle", "idle"),
    (Ignored.NO_CHANGE, "withdraw * app=idle", "idle"),
    (Ignored.CONFIRMATION, "release p type=TIMEOUT", "p"),
    (Ignored.CONFIRMATION, "withdraw p type=TIMEOUT", "p"),
    (Ignored.NOT_APPLICABLE, "release k type=PLACEHOLDER_REPLACED", "k"),
    (Ignored.NOT_APPLICABLE, "release * type=PLACEHOLDER_REPLACED", "app1"),
    (Ignored.NOT_APPLICABLE, "release * type=SCHEDULING_FAILED_ON_RM", "app1"),
    (Ignored.UNKNOWN_PARTITION, "release k partition=gpu", "k"),
    (Ignored.UNKNOWN_PARTITION, "withdraw k partition=gpu", "k"),
    (Ignored.UNKNOWN_PARTITION, "remove-app app1 partition=gpu", "app1"),
    (Ignored.UNKNOWN_PARTITION, "drain n1 partition=gpu", "n1"),
]


def stage() -> tuple[Stage, list[tuple[Ignored, str]]]:
    """Two nodes, an allocation k on n1, an ask p that never fits, an ask for two, an application without anything."""
    prepared = Stage()
    prepared.play(["node n1", "node n2", "app app1", "app idle", "run k node=n1", "ask p vcore=99000"])
    prepared.play(["ask many legacy maxallocations=2"])
    heard: list[tuple[Ignored, str]] = []
    prepared.engine.observe_ignored(lambda cause, item: heard.append((cause, item)))
    return prepared, heard


def counted(engine: Engine) -> dict[str, int]:
    (partition,) = status_of(engine).partitions
    counts = dict(partition.ignored)
    if engine.unrouted:
        counts[Ignored.UNKNOWN_PARTITION] = engine.unrouted
    return counts


@pytest.mark.parametrize(("cause", "entry", "item"), CASES)
def test_an_entry_without_effect_is_counted_once(cause: Ignored, entry: str, item: str) -> None:
    """Nothing is answered, one cause is counted, and an observer hears it with the ID that the entry named."""
    prepared, heard = stage()
    assert prepared.play([entry]) == ["no answer"]
    assert counted(prepared.engine) == {cause: 1}
    assert heard == [(cause, item)]


def test_every_cause_has_a_case() -> None:
    """The table above covers the enum."""
    assert {cause for cause, _, _ in CASES} == set(Ignored)


@pytest.mark.parametrize(
    "entry",
    ["node n3", "resize n1 vcore=7", "drain n1", "ask q", "ask p vcore=98000", "run k node=n1 vcore=2", "withdraw p"],
)
def test_what_has_an_effect_is_not_counted(entry: str) -> None:
    """Accepted entries, answered or not, count nowhere."""
    prepared, heard = stage()
    prepared.play([entry])
    assert (counted(prepared.engine), heard) == ({}, [])


def test_counting_starts_with_the_registration() -> None:
    """A manager that registers again starts at nothing."""
    prepared, _ = stage()
    prepared.play(["release z", "release k partition=gpu"])
    prepared.play(["register"])
    assert counted(prepared.engine) == {}
