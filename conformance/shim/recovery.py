"""A session in which the core has lost its state, and asks the shim to register again."""

from __future__ import annotations

from kornel.conformance.shim.stage import Over, Stage
from kornel.si.v1 import si_pb2 as si


async def expect_resync(stage: Stage) -> None:
    """Expects the shim to register again, itself or as a new program. In the first case it has to report everything
    that it has."""
    await stage.wait_until_ready("S18", running=stage.known.runs)
    core = stage.core
    several = await stage.wait_until(lambda: len(list(core.books.real_allocations())) > 1, stage.patience.settle_s)
    run = stage.some_running()
    if run is not None and stage.known.confirms and several:
        stage.demand_release(run, si.PREEMPTED_BY_SCHEDULER)
        await stage.wait_for_release(run)
    # An allocation that the shim has not read yet does not run, so those that are placed meanwhile do not count.
    placed = set(core.books.running)
    await stage.watch_briefly()
    nodes = set(core.books.nodes)
    busy = {run.app for run in core.books.running.values()} | {ask.applicationID for ask in core.books.asks.values()}
    core.drop_registration(placed)
    ran = set(core.judge.to_recover)
    has_ended = bool(core.judge.ended)
    await stage.wait_until(lambda: core.judge.registrations > 1, stage.patience.start_s)
    if core.judge.registrations == 1 and stage.ended:
        await _as_new_program(stage)
        return
    if core.judge.registrations == 1:
        stage.findings.mark_broken("S18", "was told that it is not registered, and did not register again")
        raise Over
    stage.findings.mark_kept("S18")

    def is_reported() -> bool:
        return nodes <= core.books.nodes.keys() and busy <= core.books.apps.keys() and not core.judge.to_recover

    await stage.wait_until(is_reported)
    await stage.watch_briefly()
    if stage.ended:
        stage.findings.mark_broken("S19", stage.process.end)
        raise Over
    if missing := sorted(nodes - core.books.nodes.keys()) + sorted(busy - core.books.apps.keys()):
        stage.findings.mark_broken("S19", f"{', '.join(missing)} was not reported again")
    stage.findings.mark_kept("S19", "S20")
    if ran and core.judge.to_recover.keys() == ran:
        # Some of them may have ended meanwhile and need no report, but hardly all of them.
        stage.findings.mark_broken("S21", f"{', '.join(sorted(core.judge.to_recover))} ran and was not reported again")
    elif len(ran) > 1 and not core.judge.reported_again:
        stage.findings.mark_broken("S32", f"{', '.join(sorted(ran))} ran, and all of it was reported as ended")
    if ran:
        stage.findings.mark_kept("S21")
    if has_ended:
        stage.findings.mark_kept("S32")


async def _as_new_program(stage: Stage) -> None:
    """Start the shim again, as its supervisor would."""
    stage.core.judge.to_recover.clear()
    await stage.start()
    if await stage.wait_until(lambda: stage.core.judge.registrations > 1, stage.patience.start_s):
        stage.findings.mark_kept("S18")
    else:
        stage.findings.mark_broken("S18", "ended, was started again, and did not register")
