"""A machine that does to the engine whatever a shim can do, right or wrong, and judges every answer.

One set of rules (``*_rules.py``), two drivers: Hypothesis (``tests/properties/test_machine.py``), which shrinks, and a
seeded one (``driver.py``), which does a million steps on demand. How to run and replay: docs/testing.md.
"""
