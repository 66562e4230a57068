"""The spool: what was appended is read again, whatever happens to either side in between."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kornel.core.archive.set_aside import SetAside
from kornel.core.archive.spool import Frame, Place, SpoolReader, SpoolUnusable, SpoolWriter

LIMIT = 2**20
EVERYTHING = 10**6


@contextmanager
def writing(directory: Path, limit: int = LIMIT, segment_bytes: int = 2**20) -> Iterator[SpoolWriter]:
    writer = SpoolWriter(directory, limit, segment_bytes)
    try:
        yield writer
    finally:
        writer.close()


@contextmanager
def reading(directory: Path, sealed_before: int = 0) -> Iterator[SpoolReader]:
    reader = SpoolReader(directory, sealed_before)
    try:
        yield reader
    finally:
        reader.close()


def fill(writer: SpoolWriter, count: int, size: int = 10, first: int = 0) -> None:
    for number in range(first, first + count):
        writer.append(7, 1 + number, 1, b"%04d" % number + b"x" * size)


def numbers(frames: list[Frame]) -> list[int]:
    return [int(frame.payload[:4]) for frame in frames]


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.spool"))


def left_in(directory: Path) -> tuple[list[int], int]:
    """What a new reader finds, and how many segments it calls damaged."""
    with reading(directory) as reader:
        return numbers(reader.read(EVERYTHING, ended=True)), len(reader.damaged)


def test_first_in_first_out_over_segments(tmp_path: Path) -> None:
    """Frames come in order with what names them, and go from the disk once they are done with."""
    with writing(tmp_path, segment_bytes=200) as writer, reading(tmp_path) as reader:
        fill(writer, 20)
        assert len(segments(tmp_path)) > 3
        frames = reader.read(7)
        assert [(frame.run, frame.first, frame.records) for frame in frames] == [(7, 1 + n, 1) for n in range(7)]
        reader.mark_stored(frames[-1])
        assert numbers(reader.read(EVERYTHING)) == list(range(7, 20))
        reader.mark_stored(reader.read(EVERYTHING)[-1])
        assert reader.read(EVERYTHING) == []
        assert len(segments(tmp_path)) == 1
        fill(writer, 2, first=20)
        assert numbers(reader.read(EVERYTHING)) == [20, 21]
        writer.end_writing()
        reader.mark_stored(reader.read(EVERYTHING, ended=True)[-1])
        assert reader.read(EVERYTHING, ended=True) == []
        assert not segments(tmp_path)
        writer.mark_stored(reader.place)
        assert writer.waiting_bytes == 0


def test_reader_follows_a_writer_that_is_at_work(tmp_path: Path) -> None:
    """Each frame is seen once, whether the segment goes on or a new one began."""
    with writing(tmp_path, segment_bytes=100) as writer, reading(tmp_path) as reader:
        seen: list[int] = []
        for number in range(30):
            fill(writer, number % 3, first=10 * number)
            frames = reader.read(EVERYTHING)
            seen += numbers(frames)
            if frames:
                reader.mark_stored(frames[-1])
                writer.mark_stored(reader.place)
            assert writer.waiting_bytes == 0
        assert seen == [10 * number + n for number in range(30) for n in range(number % 3)]
        assert not reader.damaged


def test_what_was_not_done_is_there_after_a_restart(tmp_path: Path) -> None:
    """Only whole segments go, so a few frames may be seen twice; none is missing, and new ones come after them."""
    with writing(tmp_path, segment_bytes=200) as writer, reading(tmp_path) as reader:
        fill(writer, 20)
        reader.mark_stored(reader.read(11)[-1])
    with writing(tmp_path) as again, reading(tmp_path, again.first_segment) as reader:
        fill(again, 1)
        found = numbers(reader.read(EVERYTHING))
        assert found[-1] == 0
        assert found[-10:-1] == list(range(11, 20))
        assert not reader.damaged
        reader.mark_stored(reader.read(EVERYTHING)[-1])
        again.mark_stored(reader.place)
        assert again.waiting_bytes == 0


def test_what_an_earlier_writer_left_is_removed_once_it_is_done_with(tmp_path: Path) -> None:
    """Also while the new writer has written nothing, and the end of the last segment was cut short."""
    with writing(tmp_path) as writer:
        fill(writer, 3)
    (segment,) = segments(tmp_path)
    segment.write_bytes(segment.read_bytes()[:-1])
    with writing(tmp_path) as again, reading(tmp_path, again.first_segment) as reader:
        assert again.waiting_bytes > 0
        frames = reader.read(EVERYTHING)
        assert numbers(frames) == [0, 1]
        reader.mark_stored(frames[-1])
        assert reader.read(EVERYTHING) == []
        assert reader.place == Place(again.first_segment, 0)
        again.mark_stored(reader.place)
        assert again.waiting_bytes == 0
        assert not segments(tmp_path)


def test_a_frame_cut_short_anywhere_is_left_out(tmp_path: Path) -> None:
    """Whatever part of the last frame reached the disk, those before it are read and nothing counts as damage."""
    with writing(tmp_path) as writer:
        fill(writer, 3)
    (segment,) = segments(tmp_path)
    whole = segment.read_bytes()
    frame = len(whole) // 3
    for length in range(2 * frame, len(whole)):
        segment.write_bytes(whole[:length])
        assert left_in(tmp_path) == ([0, 1], 0), length


def test_a_frame_that_is_not_whole_yet_is_waited_for(tmp_path: Path) -> None:
    """While its segment is the last one; a later one means that it was never promised."""
    with writing(tmp_path, segment_bytes=300) as writer, reading(tmp_path) as reader:
        fill(writer, 3)
        (segment,) = segments(tmp_path)
        whole = segment.read_bytes()
        segment.write_bytes(whole[:-5])
        reader.mark_stored(reader.read(EVERYTHING)[-1])
        assert reader.read(EVERYTHING) == []
        segment.write_bytes(whole)
        assert numbers(reader.read(EVERYTHING)) == [2]


def test_damage_loses_the_rest_of_one_segment_and_is_counted(tmp_path: Path) -> None:
    """A bit that flips is noticed; the other segments are read."""
    with writing(tmp_path, segment_bytes=100) as writer:
        fill(writer, 9)
    first = segments(tmp_path)[0]
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    read, damaged = left_in(tmp_path)
    assert damaged == 1
    assert read == sorted(read)
    assert 0 < 9 - len(read) < 3
    assert read[-1] == 8


def test_full_spool_says_so(tmp_path: Path) -> None:
    """Bytes that wait count; those that are done with make room."""
    with writing(tmp_path, 500, segment_bytes=200) as writer, reading(tmp_path) as reader:
        assert not writer.full
        fill(writer, 12)
        assert writer.full
        reader.mark_stored(reader.read(11)[-1])
        writer.mark_stored(reader.place)
        assert not writer.full


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_disk_that_is_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A frame that could not be written is not there, not even in part; the next ones are."""
    with writing(tmp_path) as writer:
        fill(writer, 2)
        real = getattr(os, call)

        def fails(file: int, *data: memoryview) -> int:
            if data:
                real(file, data[0][:9])
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            with pytest.raises(OSError, match="No space"):
                writer.append(7, 3, 1, b"0099 lost")
            with pytest.raises(OSError, match="No space"):
                writer.append(7, 3, 1, b"0099 lost")
        assert len(segments(tmp_path)) == 1
        writer.append(7, 3, 1, b"0002")
    found, damaged = left_in(tmp_path)
    assert [number for number in found if number != 99] == [0, 1, 2]
    assert damaged == 0


def test_one_core_at_a_time(tmp_path: Path) -> None:
    """A spool in use is refused; one that was left is free."""
    with writing(tmp_path), pytest.raises(SpoolUnusable, match="another core"):
        SpoolWriter(tmp_path, LIMIT)
    SpoolWriter(tmp_path, LIMIT).close()


def test_place_that_is_no_directory(tmp_path: Path) -> None:
    """The reason names the place."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SpoolUnusable, match=str(file)):
        SpoolWriter(file / "spool", LIMIT)


def test_a_reader_that_outlives_its_core_leaves_the_next_cores_records_alone(tmp_path: Path) -> None:
    """Numbers of segments begin again in an empty directory: what it has not read itself is not its to remove."""
    with writing(tmp_path) as writer:
        fill(writer, 3)
    with reading(tmp_path, sealed_before=2) as old:
        old.mark_stored(old.read(EVERYTHING)[-1])
        assert old.read(EVERYTHING) == []
        assert not segments(tmp_path)
        with writing(tmp_path) as writer:
            fill(writer, 2, first=3)
            assert old.read(EVERYTHING) == []
            old.mark_stored(Frame(7, 3, 1, b"", old.place))
    assert left_in(tmp_path) == ([3, 4], 0)


def test_a_reader_that_dies_before_it_tells_what_it_removed_leaves_nothing_waiting(tmp_path: Path) -> None:
    """The next one begins with what is there, and says so."""
    with writing(tmp_path) as writer:
        fill(writer, 3)
    with segments(tmp_path)[0].open("ab") as file:
        file.write(b"KSP1 cut short")
    with writing(tmp_path) as writer:
        with reading(tmp_path, writer.first_segment) as reader:
            reader.mark_stored(reader.read(EVERYTHING)[-1])
            writer.mark_stored(reader.place)
            assert writer.waiting_bytes > 0
            assert reader.read(EVERYTHING) == []
        with reading(tmp_path, writer.first_segment) as reader:
            assert reader.read(EVERYTHING) == []
            writer.mark_stored(reader.place)
        assert writer.waiting_bytes == 0


@pytest.mark.long
def test_a_length_that_the_disk_has_damaged_asks_for_no_memory(tmp_path: Path) -> None:
    """Four gigabytes that the segment does not have are not made room for."""
    with writing(tmp_path) as writer:
        fill(writer, 2)
        writer.end_writing()
        with segments(tmp_path)[0].open("r+b") as file:
            file.seek(4)
            file.write(b"\xff\xff\xff\xf0")
        tracemalloc.start()
        try:
            found, _ = left_in(tmp_path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert found == []
    assert peak < 2**20


def test_directory_that_cannot_be_synced_costs_no_file_handles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries go on for as long as it lasts; then the frame is there."""

    def fails(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with writing(tmp_path) as writer:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            for _ in range(20):
                with pytest.raises(OSError, match="Input/output"):
                    writer.append(7, 1, 1, b"0000")
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert not segments(tmp_path)
        writer.append(7, 1, 1, b"0000")
    assert left_in(tmp_path) == ([0], 0)


def test_new_directories_survive_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one that was made has its name on the disk before anything counts as stored."""
    synced: list[str] = []
    real = os.fsync

    def noted(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        real(file)

    monkeypatch.setattr(os, "fsync", noted)
    with writing(tmp_path / "a" / "b"):
        pass
    assert {str(tmp_path), str(tmp_path / "a")} <= set(synced)


ODD_NAMES = [
    "99999999999999999999999999.spool",
    "9999999999999999.spool",
    "1.spool",
    "-000000000000001.spool",
    "000000000000000\N{ARABIC-INDIC DIGIT THREE}.spool",
    "000000000000000\N{SUPERSCRIPT TWO}.spool",
    "0000000000000001.old.spool",
    "x.spool",
    ".spool",
    "1" * 240 + ".spool",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_file_with_an_odd_name_is_set_aside(tmp_path: Path, name: str) -> None:
    """Whatever number it means: those of the writer go on from its own, and what it wrote is read."""
    with writing(tmp_path) as writer:
        fill(writer, 2)
    (tmp_path / name).write_bytes(segments(tmp_path)[0].read_bytes())
    with reading(tmp_path) as reader:
        assert numbers(reader.read(EVERYTHING)) == [0, 1], "it is not read, wherever it lies"
    with writing(tmp_path) as writer:
        assert writer.odd == (name,)
        assert writer.first_segment == 2
        fill(writer, 1, first=2)
        with reading(tmp_path, writer.first_segment) as reader:
            assert numbers(reader.read(EVERYTHING)) == [0, 1, 2]
    assert (tmp_path / "set-aside" / name).exists()
    assert SetAside(tmp_path).count_files() == 1


def test_numbers_continue_after_the_highest_possible_one(tmp_path: Path) -> None:
    """A file with that number takes nothing from what this writer and the next ones store."""
    with writing(tmp_path) as writer:
        fill(writer, 1)
    (tmp_path / f"{10**12:016d}.spool").write_bytes(b"")
    for run in range(1, 4):
        with writing(tmp_path) as writer, reading(tmp_path, writer.first_segment) as reader:
            assert writer.odd == ()
            assert writer.first_segment == 10**12 + run
            fill(writer, 1, first=run)
            assert numbers(reader.read(EVERYTHING)) == list(range(run + 1))


@pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
def test_what_is_no_file_is_no_segment(tmp_path: Path, kind: str) -> None:
    """A pipe would hold up whoever opens it for ever."""
    odd = tmp_path / "0000000000000007.spool"
    if kind == "directory":
        odd.mkdir()
    elif kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to("/dev/zero")
    with writing(tmp_path) as writer:
        assert writer.odd == (odd.name,)
        fill(writer, 1)
    assert left_in(tmp_path) == ([0], 0)


def test_a_batch_has_so_many_bytes(tmp_path: Path) -> None:
    with writing(tmp_path) as writer, reading(tmp_path) as reader:
        fill(writer, 10, size=996)
        assert numbers(reader.read(EVERYTHING, most_bytes=2_500)) == [0, 1, 2]
        assert numbers(reader.read(EVERYTHING, most_bytes=1)) == [0]


def test_the_lock_of_the_reader_is_private(tmp_path: Path) -> None:
    """Whoever could open it could keep the core from its spool."""
    before = os.umask(0)
    try:
        with reading(tmp_path):
            assert (tmp_path / "reader.lock").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
