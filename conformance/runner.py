"""Runs cases one after the other and returns their results."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import grpc
import grpc.aio

from kornel.conformance.bench import connect
from kornel.conformance.case import Case
from kornel.conformance.clock import Clock
from kornel.conformance.connection import Settings
from kornel.conformance.outcome import Mismatch, Result, Skipped, Verdict

CASE_LIMIT_S: Final = 60.0
"""The longest time that a case may take in addition to its own waiting time. It detects a core that stops reading."""


async def run_case(each: Case, address: str, clock: Clock, settings: Settings) -> Result:
    """Run one case on a separate connection. The result includes failures of any kind."""
    if each.waits_s > clock.patience_s:
        return Result(each, Verdict.GAP, f"needs a test clock, or {each.waits_s:g} s of waiting", tried=False)
    begin = time.monotonic()
    verdict, reason = await _run_script(each, address, clock, settings)
    took_s = time.monotonic() - begin
    return Result(each, verdict, reason, took_s, tried=verdict is not Verdict.GAP)


async def _run_script(each: Case, address: str, clock: Clock, settings: Settings) -> tuple[Verdict, str]:
    limit_s = CASE_LIMIT_S + each.waits_s
    async with connect(address, clock, settings) as bench:
        try:
            async with asyncio.timeout(limit_s):
                await each.script(bench)
        except Mismatch as difference:
            return Verdict.FAIL, str(difference)
        except Skipped as why:
            return Verdict.GAP, str(why)
        except TimeoutError:
            return Verdict.FAIL, f"the core holds the case up: not done after {limit_s:g} s"
        except grpc.aio.AioRpcError as error:
            return Verdict.FAIL, f"a call failed with {error.code().name}: {error.details()}"
        return Verdict.PASS, "; ".join(bench.notes)
