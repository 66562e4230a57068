"""Each core has a history of its own, and a measurement leaves none."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest

from kornel.si.v1 import si_pb2 as si
from kornel.si.v1 import si_pb2_grpc
from tests.e2e.harness import CONFIG
from tests.e2e.test_bench_command import SMALL
from tests.e2e.test_command import kornel, serving
from tests.patience import PATIENCE_S
from tests.waiting import wait_until


def history_of(address: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(kornel("history", "status", "--json", "--core", address).stdout)
    return found


def test_two_cores_write_into_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second core of the same user beside the first one keeps its own history, although nobody says where."""
    monkeypatch.delenv("KORNEL_HISTORY")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    with (
        serving(folders[0], "--grpc", f"unix:{folders[0]}/core.sock") as (_, first),
        serving(folders[1], "--grpc", f"unix:{folders[1]}/core.sock") as (_, second),
    ):
        histories = [history_of(address) for address in (first, second)]
        # The process that writes a history makes its file a moment after the core is ready.
        wait_until(lambda: len(list((tmp_path / "state").glob("history-core.sock-*.db"))) == 2, "two histories")
    assert [(history["enabled"], history["problem"]) for history in histories] == [(True, ""), (True, "")]
    assert len({history["database"] for history in histories}) == 2
    assert len(list((tmp_path / "state").glob("history-core.sock-*.db"))) == 2


def test_a_measurement_leaves_no_history(tmp_path: Path) -> None:
    """`kornel bench` leaves nothing in a core's history; what the next manager does is kept."""
    with serving(tmp_path, "--history", str(tmp_path / "history.db")) as (_, address):
        assert kornel("bench", "--core", address, *SMALL).returncode == 0
        assert kornel("history", "events", "--core", address).stdout.strip() == "nothing in this range"
        assert history_of(address)["stored"] == "0"
        with grpc.insecure_channel(address) as channel:
            stub = si_pb2_grpc.SchedulerStub(channel)
            stub.RegisterResourceManager(
                si.RegisterResourceManagerRequest(rmID="rm-1", config=CONFIG), timeout=PATIENCE_S
            )
        kept = wait_until(
            lambda: "rm-1" in (said := kornel("history", "configs", "--core", address).stdout) and said,
            "the configuration of the manager to be stored",
        )
    assert "kornel-bench" not in kept
