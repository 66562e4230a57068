"""The names and configurations that the rules choose from. The first choice is always the plainest.

IDs are disjoint between the partitions, because answers about applications and nodes do not name one.
"""

from __future__ import annotations

from typing import Final

from kornel.core.domain.resources import Resources

DEFAULT: Final = "[rm]default"
GPU: Final = "[rm]gpu"
NOWHERE: Final = "[rm]nowhere"

LEAVES: Final = ("root.p.a", "root.p.b", "root.q", "root.r", "root.s")
ODD_QUEUES: Final = ("root.p", "root.nowhere", "", "R", "root.@recovery@", "default", "root", "a..b")
USERS: Final = ("alice", "bob", "carol", "", "9!")
NODES: Final = {DEFAULT: tuple(f"n{i}" for i in range(6)), GPU: ("g0", "g1")}
APPLICATIONS: Final = {DEFAULT: tuple(f"app{i}" for i in range(8)), GPU: ("gpu0", "gpu1")}
KEYS: Final = {DEFAULT: tuple(f"k{i:02}" for i in range(48)), GPU: tuple(f"x{i}" for i in range(8))}
GROUPS: Final = ("group", "other")
FOREIGN_KEYS: Final = ("f0", "f1", "f2")

BAD_CONFIGURATIONS: Final = (
    "partitions: [",
    "partitions: []",
    "partitions:\n  - name: default\n    queues: [{name: root, queues: [{name: p, resources: {max: {vcore: -1}}}]}]\n",
    "partitions:\n  - name: default\n    queues: [{name: root, queues: [{name: p}, {name: p}]}]\n",
)
VARIANTS: Final = 96
INTERVAL_NS: Final = 10**9
LIMIT: Final = 0.2
"""Of the default partition: part of it that asks are served by preemption in any window of one interval."""


def configuration(variant: int) -> str:
    """One of :data:`VARIANTS`: sort orders, fences, modes, limits; queues, levels and a partition that come and go."""
    policy = ("fifo", "fair")[variant % 2]
    nodes = ("fair", "binpacking")[variant // 2 % 2]
    mode = ("reach", "strict")[variant // 4 % 2]
    fence = ("default", "fence", "disabled")[variant // 8 % 3]
    shape = variant // 24 % 4
    topology = ("", "\n    topology: [zone, rack]", "\n    topology: [example.com/rack]")[variant % 3]
    kept = "" if shape == 1 else "\n          - {name: s, resources: {max: {vcore: 6m}}, maxapplications: 1}"
    limits = (
        "\n        limits: [{limit: some, users: [alice], maxresources: {vcore: 9m}, maxapplications: 2}]"
        if shape == 2
        else ""
    )
    # Where the max of r comes and goes it is enforced after a second, on gangs as well as on others.
    capped = ", resources: {max: {vcore: 7m}}, properties: {quota.preemption.delay: 1s}" if variant % 4 == 1 else ""
    gpu = "" if shape == 3 else "\n  - {name: gpu, queues: [{name: root, submitacl: '*', queues: [{name: r}]}]}"
    return f"""
partitions:
  - name: default{topology}
    nodesortpolicy: {{type: {nodes}}}
    preemption:
      guaranteemode: {mode}
      quotapreemptionenabled: true
      cycle: {{interval_ms: {INTERVAL_NS // 10**6}, limit: {LIMIT}, batch: 3}}
    queues:
      - name: root
        submitacl: "*"{limits}
        properties: {{preemption.delay: 2s}}
        queues:
          - name: p
            resources: {{guaranteed: {{vcore: 16m, memory: 16}}, max: {{vcore: 24m}}}}
            queues:
              - name: a
                resources: {{guaranteed: {{vcore: 14m, memory: 12}}}}
                properties: {{application.sort.policy: {policy}}}
              - name: b
                resources: {{max: {{vcore: 20m, memory: 20}}}}
                properties: {{priority.offset: "{variant % 3}"}}
          - name: q
            resources: {{guaranteed: {{vcore: 15m}}}}
            properties: {{preemption.policy: {fence}, application.sort.policy: {policy}}}
          - {{name: r{capped}}}{kept}{gpu}
"""


def attributes_of(place: int) -> tuple[tuple[str, str], ...]:
    """The attributes of a node at one of nine places: some without a rack, some without a zone."""
    zone, rack = ("a", "b", "")[place // 3 % 3], ("r1", "r2", "")[place % 3]
    return (("example.com/rack", rack), ("rack", rack), ("zone", zone))


def size(vcore: int, memory: int, device: int = 0) -> Resources:
    amounts = {"vcore": vcore, "memory": memory}
    return Resources({**amounts, "device": device} if device else amounts)
