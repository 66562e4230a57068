"""The files of an attempt, and what the log of one takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kornel.shim_local.machine.attempt_folder import AttemptFolder, Slot
from kornel.shim_local.machine.capacity import Capacity, Gpu, find_capacity, find_gpus
from kornel.shim_local.machine.supervisor import BoundedLog
from kornel.shim_local.script_options import BadScript, read_options


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    """The folder of an attempt that has not begun."""
    folder = AttemptFolder(tmp_path / "1-1")
    folder.create({"command": ["true"]})
    return folder


def test_a_record_has_its_size_from_the_beginning(folder: AttemptFolder) -> None:
    """So that it can be written where there is no space left."""
    assert [folder.read_slot(slot) for slot in Slot] == [None, None, None]
    size = folder.record.stat().st_size
    folder.write_slot(Slot.END, {"status": 1, "refused": "x" * 10_000})
    folder.write_slot(Slot.BEGIN, {"pid": 5})
    assert folder.record.stat().st_size == size
    assert folder.read_spec() == {"command": ["true"]}
    assert folder.read_slot(Slot.BEGIN) == {"pid": 5}
    end = folder.read_slot(Slot.END)
    assert end is not None
    assert (end["status"], len(end["refused"])) == (1, 200)
    assert folder.read_slot(Slot.START) is None


def test_half_a_record_is_none(folder: AttemptFolder) -> None:
    with folder.record.open("r+b") as file:
        file.write(b'{"pid": 5')
    assert folder.read_slot(Slot.BEGIN) is None


def test_a_log_ends_at_its_limit(folder: AttemptFolder) -> None:
    log = BoundedLog(folder, 10)
    for _ in range(3):
        log.write(b"123456")
    log.close()
    text = folder.log.read_text()
    assert text.startswith("1234561234\n[kornel: the log has reached its limit of 10 bytes")
    assert text.endswith("[kornel: 8 bytes of the log were left out]\n")


def test_a_log_that_is_full_to_the_byte_has_no_note(folder: AttemptFolder) -> None:
    log = BoundedLog(folder, 6)
    log.write(b"123456")
    log.close()
    assert folder.log.read_text() == "123456"


def test_a_log_without_a_disk_goes_on(folder: AttemptFolder) -> None:
    """/dev/full has never space: what the job writes is counted, and the job is not stopped."""
    log = BoundedLog(folder, 100)
    os.close(log._file)
    log._file = os.open("/dev/full", os.O_WRONLY)
    log.write(b"123456")
    log.write(b"123456")
    log.close()
    assert log.lost == 12


def test_options_stand_above_the_first_command(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        "#!/bin/sh\n\n#KORNEL --vcore 2 --name 'two words' # why\n#KORNELX --no\n#KORNEL\nls\n#KORNEL --no\n"
    )
    assert read_options(script) == ["--vcore", "2", "--name", "two words"]
    script.write_bytes(b"\x7fELF\n#KORNEL --vcore 2\n")
    assert read_options(script) == []
    assert read_options(tmp_path) == read_options(tmp_path / "missing") == []
    script.write_text("#!/bin/sh\n#KORNEL 'open\n")
    with pytest.raises(BadScript, match="script:2: No closing quotation"):
        read_options(script)


def test_capacity_is_found_or_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs are those that nvidia-smi lists; without it, or if it fails, there are none."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemFree: 1 kB\nMemTotal:       2048 kB\n")
    found = find_capacity(gpus=0, meminfo=meminfo)
    assert found == Capacity(len(os.sched_getaffinity(0)) * 1000, 2 * 2**20, 0)
    assert found.to_resources() == {"vcore": found.vcore, "memory": found.memory}
    assert find_capacity(1, 2, 3).to_resources() == {"vcore": 1, "memory": 2, "nvidia.com/gpu": 3}
    assert find_capacity(1, 2, 3).devices == (Gpu("0"), Gpu("1"), Gpu("2"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus(folder=tmp_path) == ()
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: GPU-1)'\necho 'GPU 1: B'\n")
    program.chmod(0o755)
    assert find_gpus() == (Gpu("0", "A"), Gpu("1", "B"))
    assert find_capacity(1, 2, 1).devices == (Gpu("0", "A"),)
    program.write_text("#!/bin/sh\nexit 9\n")
    assert find_gpus(folder=tmp_path) == ()


def test_gpus_are_read_with_type_and_memory(tmp_path: Path) -> None:
    """The table of nvidia-smi comes first, then its list, then the files of the devices."""
    table = "0, NVIDIA A100-SXM4-80GB, 81920\n1, Tesla T4 (old), [N/A]\nNo further devices\n"
    assert find_gpus(lambda _: table) == (Gpu("0", "NVIDIA-A100-SXM4-80GB", 80 * 2**30), Gpu("1", "Tesla-T4-old"))
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia0"):
        (tmp_path / name).touch()
    assert find_gpus(lambda _: "", tmp_path) == (Gpu("0"), Gpu("2"), Gpu("10"))
