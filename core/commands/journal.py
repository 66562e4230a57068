"""Commands ``kornel journal`` and ``kornel replay``, which read the journal of a core from where it is kept."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kornel.cli.options import refuse_input, report_failure
from kornel.cli.terminal import echo_json, echo_line, echo_text, print_error
from kornel.cli.text.lines import join_lines
from kornel.core.journal.database.choices import DEFAULT_KEEP
from kornel.shared.readable_amounts import format_time

if TYPE_CHECKING:
    from kornel.core.journal.content.records import Record
    from kornel.core.journal.database.store import JournalStore
    from kornel.core.journal.snapshots.snapshot_store import SnapshotStore

journal_app = typer.Typer(help="Show, check and prune the journal of a core.", no_args_is_help=True)

PATIENCE_S = 60.0

Where = Annotated[
    str,
    typer.Argument(metavar="FILE|URL", envvar="KORNEL_JOURNAL", help="Where the journal is, as --journal names it."),
]
First = Annotated[int, typer.Option("--from", min=0, metavar="RECORD", help="First record; 0: the first that is kept.")]
Place = Annotated[
    int | None,
    typer.Option(
        "--place", min=0, metavar="NUMBER", help="Only the records of this place, that is of one resource manager."
    ),
]
Last = Annotated[int, typer.Option("--to", min=0, metavar="RECORD", help="Last record; 0: the last one.")]


@journal_app.command("info")
def info(where: Where) -> None:
    """Show the size of a journal, its snapshots, and where the next core would begin."""
    from kornel.core.journal.following.starting import list_usable  # noqa: PLC0415
    from kornel.core.journal.snapshots.snapshots import list_places  # noqa: PLC0415 - takes a while to import

    with _open_journal(where) as (store, snapshots):
        end = store.find_end()
        first, blocks, size = store.count_bytes()
        kept = snapshots.list_snapshots()
        newest = next(list_usable(store, snapshots, end), None)
        places = list_places(snapshots.read_snapshot(newest.sequence)) if newest is not None else []
    if not end.sequence:
        echo_line("no records")
        return
    lines = [
        f"records {first} to {end.sequence} in {blocks} blocks, {size} bytes",
        f"epoch {end.epoch}, last written at {format_time(end.at_ns)}",
    ]
    for each in kept:
        said = each.problem or f"of {format_time(each.head.at_ns)}, version {each.head.version}"
        lines.append(f"snapshot after record {each.sequence}, {each.size} bytes: {said}")
    if newest is not None:
        lines.append(
            f"a core that starts uses the snapshot after record {newest.sequence}, which has"
            f" {_name_places(places)}, and replays {end.sequence - newest.sequence} records"
        )
    else:
        lines.append(f"a core that starts replays records {end.life} to {end.sequence}")
    echo_text(join_lines(lines))


@journal_app.command("verify")
def verify(where: Where) -> None:
    """Check every record and snapshot. Exits 1 when one is missing or damaged, and names it."""
    from kornel.core.journal.database.reading import verify_store  # noqa: PLC0415 - takes a while to import
    from kornel.core.journal.snapshots.snapshots import SnapshotUnusable, check_snapshot  # noqa: PLC0415

    damaged: list[str] = []
    with _open_journal(where) as (store, snapshots):
        found = verify_store(store)
        for kept in snapshots.list_snapshots():
            try:
                check_snapshot(snapshots.read_snapshot(kept.sequence))
            except SnapshotUnusable as error:
                damaged.append(f"snapshot after record {kept.sequence}: {error}")
    for damage in found.damage:
        records = (
            f"record {damage.first}" if damage.first == damage.last else f"records {damage.first} to {damage.last}"
        )
        print_error(f"{records}: {damage.reason}")
    for said in damaged:
        print_error(said)
    if found.damage or damaged:
        print_error(f"{found.records} of the records {found.first} to {found.last} are sound")
        raise typer.Exit(1)
    echo_line(f"{found.records} records are sound" if found.records else "no records")


@journal_app.command("export")
def export_records(
    where: Where,
    first: First = 0,
    last: Last = 0,
    place: Place = None,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Replace all names, and leave out configurations, tags and remarks.")
    ] = False,
) -> None:
    """Print records as lines of JSON."""
    from kornel.core.journal.content.records import RecordDamaged  # noqa: PLC0415
    from kornel.core.journal.database.export import Pseudonyms, write_line  # noqa: PLC0415 - takes a while to import
    from kornel.core.journal.database.reading import read_records  # noqa: PLC0415

    pseudonyms = Pseudonyms() if anonymise else None
    with _open_store(where) as store:
        try:
            for record, _ in read_records(store, max(1, first)):
                if last and record.sequence > last:
                    break
                if place is None or record.call.place == place:
                    echo_json(write_line(record, pseudonyms).decode())
        except RecordDamaged as error:
            raise report_failure(error) from error


@journal_app.command("copy")
def copy(
    where: Where,
    to_file: Annotated[Path, typer.Argument(metavar="COPY", help="File of the new SQLite journal.")],
    last: Last = 0,
) -> None:
    """Copy the state after a record into a separate journal, with which a core can be started.

    It begins with the newest snapshot before --to, and ends with the block of records that has --to.
    """
    from kornel.core.journal.following.copying import copy_records  # noqa: PLC0415 - takes a while to import

    with _open_journal(where) as (store, snapshots):
        copied = copy_records(store, snapshots, last or store.find_end().sequence, to_file)
    began = f"the snapshot after record {copied.snapshot}" if copied.snapshot else "an empty core"
    echo_line(f"records {copied.first} to {copied.last} were copied; they begin with {began}")


@journal_app.command("prune")
def prune(
    where: Where,
    keep: Annotated[
        str,
        typer.Option(
            "--keep", metavar="AGE[,MIB]", help="What to keep, as --journal-keep of kornel serve says; 0: anything."
        ),
    ] = DEFAULT_KEEP,
) -> None:
    """Remove the snapshots and records that exceed the limits of age or size, but none that the next core needs to
    start.

    A core does so by itself whenever it has made a snapshot.
    """
    from kornel.core.journal.database.settings import JournalSettingsError, KeptJournal  # noqa: PLC0415
    from kornel.core.journal.snapshots.retention import prune_journal  # noqa: PLC0415 - takes a while to import

    try:
        kept = KeptJournal.parse(keep)
    except JournalSettingsError as error:
        raise refuse_input(f"--keep: {error}") from error
    with _open_journal(where, writing=True) as (store, snapshots):
        pruned = prune_journal(store, snapshots, kept)
    echo_line(f"{pruned.snapshots} snapshots, and {pruned.blocks} blocks before record {pruned.first} were removed")


def replay(
    where: Where,
    first: First = 0,
    last: Last = 0,
    place: Place = None,
    verify: Annotated[  # noqa: A002, RUF100
        bool, typer.Option("--verify", help="Compare with the recorded decisions, and stop at the first difference.")
    ] = False,
) -> None:
    """Make the decisions of a journal again. Prints each call and its effects, or compares them with --verify.

    Begins with the newest snapshot before --from. A call on which the core failed is left out, as the core did; if it
    is the last one, it is made, and the traceback is printed. Exits 1 at the first difference, of which it prints both
    sides, and at a record that cannot be read.
    """
    from kornel.core.journal.content.calls import CallKind, CallOutcome  # noqa: PLC0415 - takes a while to import
    from kornel.core.journal.content.records import RecordDamaged  # noqa: PLC0415
    from kornel.core.journal.content.replay import ReplayImpossible, pause_collecting  # noqa: PLC0415
    from kornel.core.journal.database.reading import read_records  # noqa: PLC0415
    from kornel.core.journal.following.starting import begin_replay  # noqa: PLC0415

    began = time.perf_counter()
    with _open_journal(where) as (store, snapshots), pause_collecting():
        played, begin = begin_replay(store, snapshots, first, only=place)
        failed: Record | None = None
        try:
            for record, _ in read_records(store, begin):
                if last and record.sequence > last:
                    break
                found = played.play(record)
                if record.result.outcome is CallOutcome.FAILED:
                    failed = record if place is None or record.call.place == place else failed
                elif failed and record.call.place == failed.call.place and record.call.kind is not CallKind.NOTE:
                    failed = None
                if record.sequence < first or (place is not None and record.call.place != place):
                    continue
                if not verify:
                    echo_line(played.describe_last(record))
                elif found is not None:
                    print_error(found.describe())
                    raise typer.Exit(1)
        except (RecordDamaged, ReplayImpossible) as error:
            raise report_failure(error) from error
    if failed is not None:
        failure = played.repeat_failure(failed)
        said = "".join(traceback.format_exception(failure)).rstrip() if failure is not None else "it does not fail here"
        echo_text(f"record {failed.sequence} once more, on which the core failed:\n{said}")
    took_s = time.perf_counter() - began
    summary = f"{played.records} records with {played.effects} effects in {took_s:.1f} s"
    echo_line(f"{summary}, all decisions are the same" if verify else summary)


def _name_places(places: list[int]) -> str:
    numbers = ", ".join(map(str, places))
    return f"place {numbers}" if len(places) == 1 else f"places {numbers}"


@contextmanager
def _open_store(where: str) -> Iterator[JournalStore]:
    with _open_journal(where) as (store, _):
        yield store


@contextmanager
def _open_journal(where: str, *, writing: bool = False) -> Iterator[tuple[JournalStore, SnapshotStore]]:
    # These modules take long to import, and no other command needs them.
    from kornel.core.journal.database.settings import JournalSettingsError, journal_settings  # noqa: PLC0415
    from kornel.core.journal.database.store import STORE_ERRORS, JournalStore, describe_error  # noqa: PLC0415
    from kornel.core.journal.snapshots.snapshot_store import opened_snapshots  # noqa: PLC0415

    try:
        settings = journal_settings(where)
    except JournalSettingsError as error:
        raise refuse_input(error) from error
    if settings is None:
        raise refuse_input("the journal is off, so there is nothing to read")
    try:
        JournalStore(settings.url, PATIENCE_S, read_only=True).open()
        store = JournalStore(settings.url, PATIENCE_S, read_only=not writing)
    except (ImportError, *STORE_ERRORS) as error:
        raise report_failure(error) from error
    try:
        with opened_snapshots(settings.url, PATIENCE_S, read_only=not writing) as snapshots:
            yield store, snapshots
    except STORE_ERRORS as error:
        print_error(f"{settings.shown}: {describe_error(error)}")
        raise typer.Exit(1) from error
    finally:
        store.close()
