"""Questions that take long come one after the other."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import signal
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path
from types import SimpleNamespace

import pytest

from kornel.core.domain.commands import CommandRefused, Fault
from kornel.core.service.machine import process_copies
from kornel.core.service.runner.questions import LONGEST_REST_S, MOST_WAITING, Questions
from kornel.core.service.wire.status_codes import TooMany


async def test_others_have_their_turn_between_two() -> None:
    questions, seen = Questions(), []

    async def everybody_else() -> None:
        while seen.count("question") < 4:
            seen.append("other")
            await asyncio.sleep(0)

    def answer(number: int) -> int:
        seen.append("question")
        return number

    asked = [asyncio.create_task(questions.ask(lambda number=number: answer(number))) for number in range(4)]
    other = asyncio.create_task(everybody_else())
    assert await asyncio.gather(*asked) == [0, 1, 2, 3]
    await other
    assert "question question" not in " ".join(seen)


async def test_there_is_a_limit() -> None:
    questions = Questions()
    asked = [asyncio.create_task(questions.ask(lambda: 1)) for _ in range(MOST_WAITING + 1)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers.count(1) == MOST_WAITING
    assert isinstance(answers[-1], TooMany)
    assert await questions.ask(lambda: 2) == 2


async def test_a_question_that_cannot_be_answered_says_so() -> None:
    questions = Questions()
    with pytest.raises(ZeroDivisionError):
        await questions.ask(lambda: 1 // 0)
    assert await questions.ask(lambda: 2) == 2


@pytest.mark.parametrize("took_s", [0.02, 3.0])
async def test_one_that_comes_after_the_answer_has_to_wait_as_well(
    took_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls sent at once are accepted one by one, so that each finds nobody waiting before it."""
    now_s, spans, sleep = 0.0, [], asyncio.sleep

    def answer() -> None:
        nonlocal now_s
        began = now_s
        now_s += took_s
        spans.append((began, now_s))

    async def pass_time(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        await sleep(0)

    monkeypatch.setattr("kornel.core.service.runner.questions.time", SimpleNamespace(perf_counter=lambda: now_s))
    monkeypatch.setattr(asyncio, "sleep", pass_time)
    questions = Questions()
    for _ in range(3):
        await questions.ask(answer)
    for (_, ended), (next_began, _) in itertools.pairwise(spans):
        assert next_began - ended >= min(took_s, LONGEST_REST_S)


async def test_what_is_answered_apart_changes_nothing_here() -> None:
    """The copy has the same records; the answer, or the error with its course, comes back."""
    questions, records = Questions(), [1]

    def change_records() -> int:
        records.append(2)
        return sum(records)

    assert await questions.ask_apart(change_records) == 3
    assert records == [1]
    with pytest.raises(CommandRefused, match="no such node") as refused:
        await questions.ask_apart(refuse)
    assert refused.value.fault is Fault.INVALID_ARGUMENT
    assert "in refuse" in "".join(refused.value.__notes__)


def refuse() -> None:
    raise CommandRefused(Fault.INVALID_ARGUMENT, "no such node")


async def test_a_copy_that_is_killed_costs_its_own_answer_only() -> None:
    questions = Questions()
    with pytest.raises(TooMany, match="was killed, maybe to save memory"):
        await questions.ask_apart(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert await questions.ask_apart(lambda: 2) == 2


async def test_a_copy_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """For instance because a thread held a lock when the process was copied, which nobody in the copy releases."""
    questions, lock = Questions(), threading.Lock()
    monkeypatch.setattr(process_copies, "LONGEST_S", 0.01)
    with lock, pytest.raises(TooMany, match=r"took more than 0\.01 s"):
        await questions.ask_apart(lock.acquire)
    monkeypatch.undo()
    assert await questions.ask_apart(lambda: 2) == 2


async def test_a_copy_holds_no_files_of_the_core() -> None:
    """So locks and ports are free as soon as the core ends."""
    held = os.dup(0)
    with pytest.raises(TooMany, match="Bad file descriptor"):
        await Questions().ask_apart(lambda: os.fstat(held))
    os.close(held)
    assert len(await Questions().ask_apart(lambda: list(Path("/proc/self/fd").iterdir()))) == 5  # The list is one.


async def test_a_copy_goes_first_where_memory_is_short_and_with_the_group() -> None:
    """The system takes what says of itself that it may be taken, before the core, which is larger."""
    assert await Questions().ask_apart(Path("/proc/self/oom_score_adj").read_text) == "1000\n"
    ends = await Questions().ask_apart(lambda: [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)])
    assert ends == [signal.SIG_DFL, signal.SIG_IGN]


async def test_there_is_no_copy_with_threads_of_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would abort it, now and then."""
    importlib.import_module("grpc")
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "1")
    with pytest.raises(RuntimeError, match="GRPC_ENABLE_FORK_SUPPORT=false must be in the environment"):
        await Questions().ask_apart(lambda: 2)


async def test_others_go_on_while_a_copy_works_and_it_ends_if_who_asked_goes() -> None:
    """There is never a second one, and whoever asked next need not wait for an answer that nobody wants."""
    questions = Questions()
    with Listener() as listener:
        address = listener.address

        def answer_when_told() -> int:
            with Client(address) as client:
                return int(client.recv())

        first = asyncio.create_task(questions.ask_apart(answer_when_told))
        second = asyncio.create_task(questions.ask_apart(lambda: 2))
        with await asyncio.to_thread(listener.accept) as told:
            assert questions.waiting == 2
            first.cancel()
            assert await second == 2
            with pytest.raises(EOFError):
                told.recv()
    with pytest.raises(asyncio.CancelledError):
        await first
