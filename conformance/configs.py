"""Queue configurations of the cases.

Every configuration has a leaf ``root.probe`` without limits, in which
:meth:`kornel.conformance.bench.Bench.expect_free` measures the free amounts of nodes.
"""

from __future__ import annotations

from typing import Final

PROBE_QUEUE: Final = "root.probe"

_HEAD: Final = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
"""


def queues(*leaves: str, head: str = _HEAD) -> str:
    """Returns a configuration with *leaves* below the root, each the YAML text of one queue as :func:`leaf_text` gives
    it."""
    listed = "".join(f"          {line}\n" for text in (*leaves, leaf_text("probe")) for line in text.splitlines())
    return f"{head}        queues:\n{listed}"


def leaf_text(
    name: str,
    *,
    maximum: str = "",
    guaranteed: str = "",
    properties: str = "",
) -> str:
    """Returns one leaf queue. The other arguments are flow mappings in YAML, such as ``{vcore: 1}``."""
    lines = [f"- name: {name}"]
    if maximum or guaranteed:
        lines.append("  resources:")
        lines += [f"    guaranteed: {guaranteed}"] if guaranteed else []
        lines += [f"    max: {maximum}"] if maximum else []
    if properties:
        lines.append(f"  properties: {properties}")
    return "\n".join(lines)


BASIC: Final = queues(leaf_text("a"))
"""The contract's "reg": a fifo leaf root.a without limits, to which everyone may submit."""

TWO_LEAVES: Final = queues(leaf_text("a"), leaf_text("b"))

WITHOUT_A: Final = queues(leaf_text("b"))
""":data:`TWO_LEAVES` without root.a."""

PREEMPTION: Final = queues(
    leaf_text("a", guaranteed="{vcore: 5}", properties="{preemption.delay: 1ms}"),
    leaf_text("b"),
)
"""A configuration in which root.a is guaranteed 5 vcore and preempts in root.b once an ask is a millisecond old."""

UNKNOWN_KEY: Final = BASIC.replace("submitacl", "submitters")

ROOT_WITH_LIMITS: Final = BASIC.replace(
    '        submitacl: "*"\n', '        submitacl: "*"\n        resources: {max: {vcore: 10}}\n'
)

USER_LIMIT: Final = queues(
    leaf_text("a"),
    head=_HEAD + "        limits:\n          - {limit: each user, users: ['*'], maxresources: {vcore: 2}}\n",
)

NO_ACCESS: Final = queues(leaf_text("a"), head=_HEAD.replace('"*"', '"somebody"'))
