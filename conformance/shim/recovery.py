"""The session in which the core has forgotten everything, and tells the shim to register again."""

from __future__ import annotations

from conformance.shim.stage import Over, Stage


async def resync(stage: Stage) -> None:
    """The shim registers again, by itself or as a new program, and in the first case reports everything it has."""
    await stage.ready("S18", running=stage.known.runs)
    core = stage.core
    # What the shim has not read yet does not run.
    await stage.pause()
    nodes = set(core.books.nodes)
    busy = {run.app for run in core.books.running.values()} | {ask.applicationID for ask in core.books.asks.values()}
    core.forget()
    ran = len(core.judge.to_recover)
    await stage.until(lambda: core.judge.registrations > 1, stage.patience.start_s)
    if core.judge.registrations == 1 and stage.ended:
        await _as_new_program(stage)
        return
    if core.judge.registrations == 1:
        stage.findings.broken("S18", "was told that it is not registered, and did not register again")
        raise Over
    stage.findings.kept("S18")

    def reported() -> bool:
        return nodes <= core.books.nodes.keys() and busy <= core.books.apps.keys() and not core.judge.to_recover

    await stage.until(reported)
    await stage.pause()
    if stage.ended:
        stage.findings.broken("S19", stage.process.end)
        raise Over
    if missing := sorted(nodes - core.books.nodes.keys()) + sorted(busy - core.books.apps.keys()):
        stage.findings.broken("S19", f"{', '.join(missing)} was not reported again")
    stage.findings.kept("S19", "S20")
    if ran and len(core.judge.to_recover) == ran:
        # Some may have ended meanwhile, and need no report; that all did is not plausible.
        stage.findings.broken("S21", f"{', '.join(sorted(core.judge.to_recover))} ran and was not reported again")
    if ran:
        stage.findings.kept("S21")


async def _as_new_program(stage: Stage) -> None:
    """What supervises the shim would start it again."""
    stage.core.judge.to_recover.clear()
    await stage.start()
    if await stage.until(lambda: stage.core.judge.registrations > 1, stage.patience.start_s):
        stage.findings.kept("S18")
    else:
        stage.findings.broken("S18", "ended, was started again, and did not register")
