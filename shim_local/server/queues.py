"""The queues of a server without a configuration file: ordinary queues, and one that preempts their tasks to get its
guarantee."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

BUILT_IN_DEFAULT: Final = "batch"
"""The built-in queue of jobs that name no queue. It is not called default, because the core places applications with a
wrong queue in a queue of that name."""
DEFAULT: Final = "default"
"""The queue of jobs that name no queue, if the queues come from a file."""
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
    """Returns the configuration of the built-in queues. The guarantee of ``urgent`` is everything that the machines
    have."""
    vcore = memory = 0
    for capacity in capacities:
        vcore += capacity["vcore"]
        memory += capacity["memory"]
    return BUILT_IN.format(vcore=vcore, memory=memory)
