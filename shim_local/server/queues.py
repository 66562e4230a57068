"""The queues of a server to which nobody gave a file: ordinary ones, and one that takes its room back from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

BUILT_IN_DEFAULT: Final = "batch"
"""The built-in queue of jobs that name none. It is not called default: there the core puts what names a wrong queue."""
DEFAULT: Final = "default"
"""The queue of jobs that name none where a file has the queues."""
BUILT_IN: Final = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
            submitacl: "*"
          - name: urgent
            submitacl: "*"
            resources:
              guaranteed: {{vcore: {vcore}m, memory: {memory}}}
            properties:
              preemption.delay: 1s
"""


def build_queues(capacities: Iterable[Mapping[str, Any]]) -> str:
    """Returns the built-in queues: the guarantee of ``urgent`` is everything that the machines have."""
    vcore = memory = 0
    for capacity in capacities:
        vcore += capacity["vcore"]
        memory += capacity["memory"]
    return BUILT_IN.format(vcore=vcore, memory=memory)
