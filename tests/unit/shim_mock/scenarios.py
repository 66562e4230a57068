"""A small scenario that tests change in one place."""

from __future__ import annotations

from kornel.shim_mock.scenario import Scenario, parse_scenario

CONFIG = """\
  partitions:
    - name: default
      queues:
        - name: root
          submitacl: "*"
          queues:
            - name: prod
              resources:
                guaranteed: {vcore: 4}
            - name: batch
              resources:
                guaranteed: {vcore: 2}
"""

GOOD = f"""\
name: small
seed: 5
speed: 100
generation: g3
settle: 300ms
timeout: 2m
queues:
{CONFIG}
nodes:
  - name: node
    count: 2
    resources: {{vcore: 4, memory: 8Gi}}
priorityClasses:
  - name: high
    value: 1000
    allowPreemption: false
    preemptionPolicy: PreemptLowerPriority
applications:
  - id: job
    queue: root.batch
    tasks:
      - name: worker
        count: 2
        resources: {{vcore: 1, memory: 1Gi}}
        priorityClass: high
releases:
  delay: 10s
expectations:
  - nothing lost
"""


def changed(old: str, new: str) -> str:
    """The small scenario's text with one place changed."""
    assert GOOD.count(old) >= 1, old
    return GOOD.replace(old, new, 1)


def small(*changes: tuple[str, str]) -> Scenario:
    """The small scenario with some places changed."""
    text = GOOD
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return parse_scenario(text)
