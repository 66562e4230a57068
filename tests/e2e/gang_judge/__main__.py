"""Plays worlds again: ``python -m tests.e2e.gang_judge FIRST [COUNT]``. Prints the course of each that fails."""

from __future__ import annotations

import asyncio
import sys

from tests.e2e.gang_judge.course import Disagreement, run_world


async def play(first: int, count: int) -> int:
    """Returns how many worlds were not as the rules say."""
    total: dict[str, int] = {}
    failed: list[int] = []
    waiting = list(range(first, first + count))

    async def run_next() -> None:
        while waiting:
            seed = waiting.pop(0)
            try:
                for what, number in (await run_world(seed)).items():
                    total[what] = total.get(what, 0) + number
            except Disagreement as error:
                failed.append(seed)
                print(f"=== world {seed}\n{error}\n", flush=True)

    await asyncio.gather(*(run_next() for _ in range(8)))
    print(f"{count} worlds, {len(failed)} failed: {failed}\n{total}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(bool(asyncio.run(play(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))))
