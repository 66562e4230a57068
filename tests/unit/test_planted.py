"""The table of planted faults fits the code: ``python -m tests.planted`` could plant each, and run the test that finds
it."""

from __future__ import annotations

from tests.planted import ROOT, read_faults


def test_every_fault_has_its_place_and_its_test() -> None:
    """Whoever changes the line of a fault, or renames its test, changes the table, too."""
    faults = read_faults()
    texts = {fault.path: (ROOT / fault.path).read_text(encoding="utf-8") for fault in faults}
    assert [fault.name for fault in faults if texts[fault.path].count(fault.old) != 1 or fault.old == fault.new] == []
    assert [fault.name for fault in faults if not fault.has_test()] == []


def test_there_are_enough_faults_of_all_kinds() -> None:
    """At least forty, each with a name of its own: one for every law, rule on claims, gate, codec and permission."""
    names = [fault.name for fault in read_faults()]
    assert len(set(names)) == len(names) >= 40
    wanted = {*(f"law-{number}" for number in range(2, 9)), *(f"claim-{number}" for number in range(1, 12))}
    kinds = {"gate", "permission", "wire", "journal", "snapshot", "limit", "gang", "devices", "invariant", "monitor"}
    begun = {"-".join(name.split("-")[:parts]) for name in names for parts in (1, 2)}
    assert wanted | kinds <= begun
