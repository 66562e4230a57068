"""One API server for all tests; a fresh core, kubelets and shims for each, and a judge of all their bindings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster, ControlPlane, keep_logs, run_control_plane


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Lets fixtures see whether the test has failed."""
    report = yield
    if report.when == "call":  # type: ignore[attr-defined]
        item.report_of_call = report  # type: ignore[attr-defined]
    return report


@pytest.fixture(scope="session")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with run_control_plane(tmp_path_factory.mktemp("kube")) as plane:
        yield plane


@pytest.fixture
def cluster(control: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(control, tmp_path)
    try:
        yield made
        made.check_bindings()
    finally:
        made.end()
        if not control.program.is_running():
            control.start()
        made.clear()
        keep_logs(request, tmp_path)
