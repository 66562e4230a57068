"""The spool: what was appended is read again, whatever happens to the process in between."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from core.archive.spool import Spool, SpoolUnusable

LIMIT = 2**20


def fill(spool: Spool, count: int, size: int = 10) -> None:
    for number in range(count):
        spool.append(7, 1 + number, 1, b"%04d" % number + b"x" * size)


def numbers(spool: Spool) -> list[int]:
    return [int(frame.payload[:4]) for frame in spool.read(10**6)]


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.spool"))


def test_first_in_first_out_over_segments(tmp_path: Path) -> None:
    """Frames come back in order with what names them, and go from the disk once they are done with."""
    spool = Spool(tmp_path, LIMIT, segment_bytes=200)
    fill(spool, 20)
    assert len(segments(tmp_path)) > 3
    frames = spool.read(7)
    assert [(frame.run, frame.first, frame.records) for frame in frames] == [(7, 1 + n, 1) for n in range(7)]
    spool.done(frames[-1])
    assert numbers(spool) == list(range(7, 20))
    spool.done(spool.read(100)[-1])
    assert numbers(spool) == []
    assert spool.waiting_bytes == 0
    fill(spool, 2)
    assert numbers(spool) == [0, 1]
    spool.done(spool.read(100)[-1])
    spool.close()
    assert not segments(tmp_path)


def test_what_was_not_done_is_there_after_a_restart(tmp_path: Path) -> None:
    """Only whole segments go, so a few frames may be seen twice; none is missing, and new ones come after them."""
    spool = Spool(tmp_path, LIMIT, segment_bytes=200)
    fill(spool, 20)
    spool.done(spool.read(11)[-1])
    spool.close()
    again = Spool(tmp_path, LIMIT)
    fill(again, 1)
    found = numbers(again)
    assert found[-1] == 0
    assert found[-10:-1] == list(range(11, 20))
    assert again.damaged == 0
    again.close()


def test_a_frame_cut_short_anywhere_is_left_out(tmp_path: Path) -> None:
    """Whatever part of the last frame reached the disk, those before it are read and nothing counts as damage."""
    spool = Spool(tmp_path, LIMIT)
    fill(spool, 3)
    spool.close()
    (segment,) = segments(tmp_path)
    whole = segment.read_bytes()
    frame = len(whole) // 3
    for length in range(2 * frame, len(whole)):
        segment.write_bytes(whole[:length])
        found = Spool(tmp_path, LIMIT)
        assert numbers(found) == [0, 1], length
        assert found.damaged == 0, length
        found.close()


def test_damage_loses_the_rest_of_one_segment_and_is_counted(tmp_path: Path) -> None:
    """A bit that flips is noticed; the other segments are read."""
    spool = Spool(tmp_path, LIMIT, segment_bytes=100)
    fill(spool, 9)
    spool.close()
    first = segments(tmp_path)[0]
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    found = Spool(tmp_path, LIMIT)
    assert found.damaged == 1
    read = numbers(found)
    assert read == sorted(read)
    assert 0 < 9 - len(read) < 3
    assert read[-1] == 8
    found.close()


def test_full_spool_says_so(tmp_path: Path) -> None:
    """Bytes that wait count; those that are done with make room."""
    spool = Spool(tmp_path, 500, segment_bytes=200)
    assert not spool.full
    fill(spool, 12)
    assert spool.full
    spool.done(spool.read(11)[-1])
    assert not spool.full
    spool.close()


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_disk_that_is_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A frame that could not be written is not there, not even in part; the next ones are."""
    spool = Spool(tmp_path, LIMIT)
    fill(spool, 2)
    real = getattr(os, call)

    def fails(file: int, *data: memoryview) -> int:
        if data:
            real(file, data[0][:9])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(OSError, match="No space"):
            spool.append(7, 3, 1, b"0099 lost")
    spool.append(7, 3, 1, b"0002")
    assert numbers(spool) == [0, 1, 2]
    spool.close()
    again = Spool(tmp_path, LIMIT)
    found = numbers(again)
    assert [number for number in found if number != 99] == [0, 1, 2]
    again.close()


def test_one_core_at_a_time(tmp_path: Path) -> None:
    """A spool in use is refused; one that was left is free."""
    spool = Spool(tmp_path, LIMIT)
    with pytest.raises(SpoolUnusable, match="another core"):
        Spool(tmp_path, LIMIT)
    spool.close()
    Spool(tmp_path, LIMIT).close()


def test_place_that_is_no_directory(tmp_path: Path) -> None:
    """The reason names the place."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SpoolUnusable, match=str(file)):
        Spool(file / "spool", LIMIT)
