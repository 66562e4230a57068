"""Command ``kornel simulate``: what configurations would make of a workload."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kornel.cli.options import refuse_input, report_failure
from kornel.cli.terminal import echo_text, print_error

if TYPE_CHECKING:
    from kornel.simulate.comparing import Comparer, RunRow

EXIT_INTERRUPTED: Final = 130


def simulate(
    workload: Annotated[
        str,
        typer.Option("--workload", metavar="WHAT", help="A scenario file, the folder of a trace, or 'generated'."),
    ],
    queues: Annotated[
        list[Path],
        typer.Option("--queues", metavar="FILE", help="A queue configuration; repeatable, to compare with the first."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the report.")],
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="Runs of each configuration, with seeds 1, 2, …")] = 1,
    hours: Annotated[float, typer.Option(min=0.01, max=10_000, help="Of a generated workload: its length.")] = 24.0,
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Of a generated workload: nodes of 64 cores.")] = 20,
    load: Annotated[
        float, typer.Option(min=0.01, max=100, help="Of a generated workload: demand as a share of all cores.")
    ] = 1.0,
) -> None:
    """Play a workload under queue configurations, on the scheduler itself and in virtual time, and compare them.

    Ctrl-C ends it with a report on the runs that are finished.
    """
    # The engine takes a while to import, and the help lists all commands.
    from kornel.shim_mock.documents import InputError  # noqa: PLC0415
    from kornel.simulate.comparing import Comparer  # noqa: PLC0415
    from kornel.simulate.report import SUMMARY, describe_comparison, write_report  # noqa: PLC0415
    from kornel.simulate.simulated_core import ConfigurationRefused, SimulationFailed  # noqa: PLC0415
    from kornel.simulate.workloads import GENERATED, Generation, WorkloadError, open_workload  # noqa: PLC0415

    try:
        opened = open_workload(workload, Generation(hours, nodes, load))
        configurations = _read_configurations(queues)
        if workload == GENERATED:
            _check_leaves(configurations)
        out.mkdir(parents=True, exist_ok=True)
        comparer = Comparer(configurations, opened, seeds)

        def note_run(row: RunRow) -> None:
            write_report(out, comparer.comparison)
            done, wanted = len(comparer.comparison.runs), comparer.comparison.wanted
            print_error(f"{done} of {wanted}: {row.configuration}, seed {row.seed}")

        write_report(out, comparer.comparison)
        with _stop_at_interrupt(comparer):
            comparer.run_all(note_run)
    except (InputError, WorkloadError, ConfigurationRefused) as error:
        raise refuse_input(error) from error
    except OSError as error:
        raise refuse_input(f"{error.filename}: {error.strerror}") from error
    except SimulationFailed as error:
        raise report_failure(error) from error
    echo_text(describe_comparison(comparer.comparison) + f"\nThe figures are in {out}, this text as {SUMMARY}.\n")
    if not comparer.comparison.complete:
        raise typer.Exit(EXIT_INTERRUPTED)


def _read_configurations(files: list[Path]) -> list[tuple[str, str]]:
    """Returns the names of *files*, which have to differ, with their texts, which have to be valid."""
    from kornel.core.config.loader import load  # noqa: PLC0415
    from kornel.core.config.text.problems import ConfigError  # noqa: PLC0415
    from kornel.shim_mock.documents import read_text  # noqa: PLC0415
    from kornel.simulate.workloads import WorkloadError  # noqa: PLC0415

    found: dict[str, str] = {}
    for path in files:
        if str(path) in found:
            raise WorkloadError(f"{path} is named twice by --queues")
        text = found[str(path)] = read_text(path)
        try:
            load(text)
        except ConfigError as error:
            raise WorkloadError(f"{path}: {error}") from error
    return list(found.items())


def _check_leaves(configurations: list[tuple[str, str]]) -> None:
    """Refuse a configuration to whose leaves no job could come, and say if they do not all get the same jobs."""
    from kornel.shim_mock.queues import read_queues  # noqa: PLC0415
    from kornel.simulate.workloads import WorkloadError, list_leaves  # noqa: PLC0415

    leaves: set[tuple[str, ...]] = set()
    for name, text in configurations:
        try:
            leaves.add(tuple(list_leaves(read_queues(text))))
        except WorkloadError as error:
            raise WorkloadError(f"{name}: {error}") from error
    if len(leaves) > 1:
        print_error("the configurations have different leaves: their jobs are others, and so are their figures")


@contextmanager
def _stop_at_interrupt(comparer: Comparer) -> Iterator[None]:
    """Has Ctrl-C stop *comparer* while the context lasts, instead of ending the program. Only the main thread can."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: comparer.stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
