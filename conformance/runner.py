"""Runs cases one after the other and says how each one ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import grpc
import grpc.aio

from conformance.bench import connect
from conformance.case import Case
from conformance.clock import Clock
from conformance.outcome import Mismatch, Skipped

DEFAULT_DEADLINE_S: Final = 5.0
DEFAULT_SETTLE_S: Final = 0.1


class Verdict(StrEnum):
    """How a case ended. GAP: it failed, as :mod:`conformance.known_gaps` said it would."""

    PASS = "pass"  # noqa: S105 (a verdict, not a password)
    FAIL = "fail"
    SKIP = "skip"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Result:
    """``reason``: what was expected and what came, or why the case was skipped; empty for a plain pass."""

    case: Case
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """How long an expected entry may take, and how long silence is listened to, in seconds."""

    deadline_s: float = DEFAULT_DEADLINE_S
    settle_s: float = DEFAULT_SETTLE_S


async def run_case(each: Case, address: str, clock: Clock, settings: Settings) -> Result:
    """Run one case on a connection of its own. Fails of any kind end up in the result."""
    if each.waits_s > clock.patience_s:
        return Result(each, Verdict.SKIP, f"takes {each.waits_s:g} s of waiting")
    async with connect(address, clock, deadline_s=settings.deadline_s, settle_s=settings.settle_s) as bench:
        try:
            await each.script(bench)
        except Mismatch as difference:
            return Result(each, Verdict.FAIL, str(difference))
        except Skipped as why:
            return Result(each, Verdict.SKIP, str(why))
        except grpc.aio.AioRpcError as error:
            return Result(each, Verdict.FAIL, f"a call failed with {error.code().name}: {error.details()}")
        return Result(each, Verdict.PASS, "; ".join(bench.notes))


def judged(result: Result, gaps: Mapping[int, str]) -> Result:
    """*result* in the light of *gaps*: a known gap may fail, and must not pass."""
    reason = gaps.get(result.case.number)
    if reason is None or result.verdict is Verdict.SKIP:
        return result
    if result.verdict is Verdict.PASS:
        return Result(result.case, Verdict.FAIL, f"passes, but is listed as a known gap: {reason}")
    return Result(result.case, Verdict.GAP, reason)


def select(cases: Iterable[Case], numbers: Iterable[int] = (), groups: Iterable[str] = ()) -> tuple[Case, ...]:
    """The cases with one of *numbers* or in one of *groups*; all if neither is given. Raises ValueError if unknown."""
    known = tuple(cases)
    wanted, among = set(numbers), set(groups)
    if missing := wanted - {each.number for each in known}:
        raise ValueError(f"no script for case {', '.join(map(str, sorted(missing)))}")
    if missing_groups := among - {each.group for each in known}:
        raise ValueError(f"no group {', '.join(sorted(missing_groups))}")
    if not wanted and not among:
        return known
    return tuple(each for each in known if each.number in wanted or each.group in among)
