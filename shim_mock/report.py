"""Reports for people: a progress line during a run, and tables when it is over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from kornel.shared.visible import write_visibly
from kornel.shim_mock.clock import SimulatedClock
from kornel.shim_mock.cluster import SimulatedCluster
from kornel.shim_mock.quantities import UNITS, scale_amount
from kornel.shim_mock.run import RunResult

REFRESH_S: Final = 0.2
LOG_EVERY_S: Final = 10.0
"""The seconds between two lines about progress where no progress bar can be drawn."""
SHOWN: Final = 10


class LiveLine:
    """A progress bar of a run, which shows how many of the tasks asked for are placed. If the output is no terminal, it
    is a line from time to time."""

    def __init__(self, console: Console, name: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(escape(write_visibly(name)), total=None, figures="")
        self._console = console
        self._name = name
        self._every_s = REFRESH_S if console.is_terminal else LOG_EVERY_S
        self._shown_s = 0.0
        self._registrations = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, cluster: SimulatedCluster, clock: SimulatedClock) -> None:
        """Show the state of *cluster*, but not more often than a reader can follow."""
        if cluster.registration.count > self._registrations:
            self._registrations = cluster.registration.count
            self._console.print("the core was started again: everything is reported again", highlight=False)
        now_s = clock.real_s
        if now_s - self._shown_s < self._every_s:
            return
        self._shown_s = now_s
        root = cluster.accounts.queues.get("root")
        if root is not None:
            placed = sum(len(account.latencies_s) for account in cluster.accounts.queues.values())
            figures = (
                f"{now_s:.0f} s, {placed} placed, {root.waiting} waiting, {root.unsubmitted} to come, "
                f"{root.preempted} preempted"
            )
            if self._console.is_terminal:
                asked = placed + root.waiting + root.unsubmitted
                self._progress.update(self._task, completed=placed, total=asked, figures=figures)
            else:
                self._console.print(f"{escape(write_visibly(self._name))}: {figures}", highlight=False, soft_wrap=True)


def print_report(console: Console, result: RunResult, *, picture: Path | None) -> None:
    """Print tables of *result*, its anomalies, and whether it passed."""
    console.print(_queue_table(result))
    console.print(_latency_table(result.cluster))
    console.print(_expectation_table(result))
    _print_oddities(console, result)
    if picture is not None:
        console.print(f"picture: {picture}", soft_wrap=True, highlight=False)
    word = "[green]PASSED[/]" if result.passed else "[red]FAILED[/]"
    console.print(
        f"{escape(write_visibly(result.cluster.scenario.name))}: {word} after {result.took_s:.1f} s", highlight=False
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the smallest one of *values* that at least *percent* of them do not exceed, or 0 if there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _queue_table(result: RunResult) -> Table:
    """Returns a table of queues and resource types, from the core's status or, without it, from the cluster's own
    accounts."""
    partitions = result.status.partitions if result.status is not None else ()
    told = {queue.path: queue for partition in partitions for queue in partition.queues}
    table = Table(title="queues, as the core sees them" if told else "queues, as the cluster sees them")
    table.add_column("queue", no_wrap=True)
    for column in ("type", "guaran-\nteed", "max", "used", "pending", "pre-\nempted"):
        # Titles of two lines let all columns fit into 80 columns. A number cut short would be a wrong number.
        table.add_column(
            column, justify="left" if column == "type" else "right", min_width=5 if column == "type" else 7
        )
    for path, account in result.cluster.accounts.queues.items():
        queue = told.get(path)
        guaranteed = queue.guaranteed if queue is not None else account.limits.guaranteed
        maximum = queue.max if queue is not None else account.limits.maximum
        used = queue.used if queue is not None else account.used
        pending = queue.pending if queue is not None else account.pending
        # The core counts the lost tasks of leaves only; for queues above them, the cluster's own count is shown.
        preempted = queue.preempted_allocations if queue is not None and queue.leaf else account.preempted
        kinds = [kind for kind in result.cluster.scenario.capacity if kind in {*guaranteed, *maximum, *used, *pending}]
        for index, kind in enumerate(kinds or [""]):
            table.add_row(
                escape(write_visibly(path)) if index == 0 else "",
                UNITS.get(kind, kind),
                *(
                    scale_amount(kind, amounts[kind]) if kind in amounts else "-"
                    for amounts in (guaranteed, maximum, used, pending)
                ),
                str(preempted) if index == 0 else "",
            )
        table.add_section()
    return table


def _latency_table(cluster: SimulatedCluster) -> Table:
    table = Table(title="from ask to allocation, real seconds")
    for column in ("queue", "placed", "p50", "p95", "p99", "slowest", "re-created"):
        table.add_column(column, justify="left" if column == "queue" else "right")
    for leaf in cluster.accounts.leaves:
        account = cluster.accounts.queues[leaf]
        waits = account.latencies_s
        table.add_row(
            escape(write_visibly(leaf)),
            str(len(waits)),
            *(f"{percentile(waits, percent):.3f}" for percent in (50, 95, 99, 100)),
            str(account.recreated),
        )
    return table


def _expectation_table(result: RunResult) -> Table:
    table = Table(title="expectations")
    table.add_column("")
    table.add_column("expected")
    table.add_column("found")
    for verdict in result.verdicts:
        word = "[green]met[/]" if verdict.met else "[red]NOT MET[/]"
        table.add_row(word, escape(write_visibly(str(verdict.expectation))), escape(write_visibly(verdict.detail)))
    return table


def _print_oddities(console: Console, result: RunResult) -> None:
    cluster = result.cluster
    whole, parts, number = cluster.devices.share_in_use()
    if number:
        console.print(f"devices: {whole} of {number} in use as a whole, {parts} in part", highlight=False)
    if cluster.lost_confirmations or cluster.duplicated_confirmations:
        console.print(
            f"confirmations: {cluster.lost_confirmations} lost, {cluster.duplicated_confirmations} sent twice"
        )
    if result.timed_out:
        console.print("[red]the run did not come to rest before its timeout[/]")
    for anomaly in cluster.anomalies[:SHOWN]:
        console.print(f"[red]anomaly:[/] {escape(write_visibly(anomaly))}")
    if len(cluster.anomalies) > SHOWN:
        console.print(f"[red]and {len(cluster.anomalies) - SHOWN} more[/]")
