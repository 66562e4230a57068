"""Jobs and machines as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kornel.shared.visible import write_visibly
from kornel.shim_local.amounts import write_bytes, write_cores, write_duration

JOB_HEADS: Final = ("JOB", "NAME", "QUEUE", "STATE", "VCORE", "MEMORY", "GPU", "PRIO", "WHERE", "TIME", "NOTE")
NODE_HEADS: Final = ("MACHINE", "AGENT", "TASKS", "VCORE", "MEMORY", "GPU", "LIMITS")
LONGEST_CELL: Final = 60


def format_jobs(jobs: Iterable[Mapping[str, Any]], now: float) -> list[str]:
    """Returns a table of jobs. If the tasks of an array are given, each has its own line."""
    rows: list[Sequence[object]] = []
    for job in jobs:
        amounts = (write_cores(job["vcore"]), _bytes_or_dash(job["memory"]), job["gpu"] or "-", job["priority"])
        queue = str(job["queue"]).removeprefix("root.")
        if not job["tasks"]:
            counts = " ".join(f"{number} {state}" for state, number in sorted(job["counts"].items()))
            rows.append((f"{job['id']}[{job['size']}]", job["name"], queue, counts, *amounts, "", "", ""))
        rows += [
            (
                task["task"],
                job["name"],
                queue,
                _format_state(task),
                *amounts,
                task["node"],
                _format_time(task, now),
                _format_note(job, task),
            )
            for task in job["tasks"]
        ]
    return format_table(JOB_HEADS, rows)


def format_nodes(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns a table of machines."""
    rows = []
    for node in nodes:
        used, capacity = node["used"], node["capacity"]
        rows.append(
            (
                node["name"],
                "connected" if node["online"] else "away",
                used.get("tasks", 0),
                f"{write_cores(used.get('vcore', 0))}/{write_cores(capacity['vcore'])}",
                f"{write_bytes(used.get('memory', 0))}/{write_bytes(capacity['memory'])}",
                f"{used.get('gpus', 0)}/{capacity['gpus']}" if capacity["gpus"] else "-",
                node["limits"],
            )
        )
    return format_table(NODE_HEADS, rows, longest=200)


def format_table(heads: Sequence[str], rows: Iterable[Sequence[object]], longest: int = LONGEST_CELL) -> list[str]:
    """Returns lines with columns of equal width. Names that other people chose are written visibly."""
    cells = [[_shorten_cell(write_visibly(str(cell)), longest) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _shorten_cell(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _bytes_or_dash(amount: int) -> str:
    return write_bytes(amount) if amount else "-"


def _format_state(task: Mapping[str, Any]) -> str:
    if task["state"] == "running":
        if task["stopping"]:
            return "stopping"
        return "running" if task["started_s"] else "starting"
    return str(task["state"])


def _format_time(task: Mapping[str, Any], now: float) -> str:
    if not task["started_s"] or task["state"] == "queued":
        return ""
    took_s = max(0.0, (task["ended_s"] or now) - task["started_s"])
    # A time below a tenth of a second says more about the machine than about the job.
    return write_duration(round(took_s, 1) if took_s < 1 else took_s)


def _format_note(job: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    notes = [str(task["reason"])] if task["reason"] else []
    if task["state"] == "held":
        if job["on_hold"]:
            notes.append("until it is released")
        begun = not job["after"] or not job["counts"].keys() <= {"held", "cancelled"}
        if job["at_once"] and begun:
            notes.append(f"{job['at_once']} at a time")
        elif job["after"] and not begun:
            notes.append("after " + ", ".join(map(str, job["after"])))
    if task["preemptions"]:
        notes.append(f"preempted {task['preemptions']} times" if task["preemptions"] > 1 else "preempted once")
    if task["attempt"] > 1:
        notes.append(f"attempt {task['attempt']}")
    return ", ".join(dict.fromkeys(notes))
