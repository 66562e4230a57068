"""Generates a small trace with the format and the proportions of the real one, for use where that one is not
available."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Final

from kornel.shim_mock.trace import NODE_COLUMNS, POD_COLUMNS

# Weight, cores, memory in GiB, GPUs, model.
NODE_SHAPES: Final = (
    (60, 96, 384, 8, "G2"),
    (25, 104, 512, 2, "T4"),
    (15, 64, 256, 0, ""),
)
# Weight, QoS, thousandths of a core, memory in MiB, GPUs, thousandths of each GPU.
POD_SHAPES: Final = (
    (25, "LS", 11300, 49152, 1, 1000),
    (12, "LS", 11900, 47104, 1, 470),
    (10, "LS", 12500, 57344, 0, 0),
    (7, "LS", 18700, 64512, 1, 650),
    (1, "Guaranteed", 12000, 24576, 1, 1000),
    (20, "BE", 3152, 5600, 1, 810),
    (12, "BE", 8000, 30517, 1, 470),
    (7, "BE", 8000, 30517, 0, 0),
    (3, "BE", 32000, 49152, 0, 0),
    (3, "Burstable", 12000, 24576, 1, 1000),
)


def generate_trace(folder: Path, *, nodes: int = 60, pods: int = 600, seed: int = 1) -> None:
    """Write ``node_list.csv`` and ``pod_list.csv`` into *folder*, which is made if necessary. The same arguments give
    the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    luck = random.Random(seed)
    with (folder / "node_list.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(NODE_COLUMNS)
        node_weights = [shape[0] for shape in NODE_SHAPES]
        for index, (_, cores, gib, gpus, model) in enumerate(luck.choices(NODE_SHAPES, node_weights, k=nodes)):
            writer.writerow([f"node-{index:04}", cores * 1000, gib * 1024, gpus, model])
    with (folder / "pod_list.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(POD_COLUMNS)
        created = 0
        pod_weights = [shape[0] for shape in POD_SHAPES]
        for index, (_, qos, milli, mib, gpus, share) in enumerate(luck.choices(POD_SHAPES, pod_weights, k=pods)):
            created += luck.randrange(60)
            ends = created + luck.randrange(600, 36_000)
            writer.writerow(
                [f"pod-{index:04}", milli, mib, gpus, share if gpus else 0, "", qos, "Running", created, ends, created]
            )
