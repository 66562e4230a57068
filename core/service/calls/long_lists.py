"""Makes the pages of long lists one after the other, however many callers want one at once.

A page is searched and encoded in steps of about a millisecond. If all pages were made side by side, each turn of the
event loop would have a step of every page, and health checks would have to wait for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from kornel.core.service.machine.loop_time import WaitingLine, in_turns

MOST_WAITING: Final = 256
"""The most callers that wait for a page: as many as the calls that a security file allows one connection by default."""

STEP_S: Final = 0.001
"""The time for which entries are examined and encoded before others get their turn."""

ItemT = TypeVar("ItemT")
EncodedT = TypeVar("EncodedT")


class ListPage(NamedTuple, Generic[ItemT, EncodedT]):
    """The entries of one answer. ``last``: the last of them; ``None``: there are none. ``more``: others follow."""

    encoded: list[EncodedT]
    last: ItemT | None
    more: bool


class LongLists:
    """Makes the pages of one service, one at a time."""

    def __init__(self) -> None:
        self._line = WaitingLine(MOST_WAITING, "too many lists are being made; try again later")

    async def make_page(
        self,
        items: Callable[[], Iterable[ItemT]],
        size: int,
        encode: Callable[[ItemT], EncodedT],
        test: Callable[[ItemT], bool] = lambda item: True,
    ) -> ListPage[ItemT, EncodedT]:
        """Returns the first *size* of *items* that pass *test*. *items* is called when it is this page's turn.

        Raises :class:`~kornel.core.service.wire.status_codes.TooMany` when too many callers wait.
        """
        encoded: list[EncodedT] = []
        last: ItemT | None = None
        more = False

        def fill_page() -> Iterator[None]:
            nonlocal last, more
            for item in items():
                if test(item):
                    more = len(encoded) == size
                    if more:
                        return
                    encoded.append(encode(item))
                    last = item
                yield

        async with self._line.take_turn():
            async for _ in in_turns(fill_page(), STEP_S):
                pass
        return ListPage(encoded, last, more)
