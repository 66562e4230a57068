"""Remembers applications that have ended or were rejected, for three days and up to a fixed number (rest.md 3, R16)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, islice
from types import MappingProxyType
from typing import Final

from kornel.core.domain.application_states import AppState, StateEntry
from kornel.core.domain.commands import ApplicationSpec
from kornel.core.domain.resources import NOTHING, Resources
from kornel.core.model.applications import Application, SpentKind
from kornel.core.model.shapes import ResourceTypes

REMEMBERED_NS: Final = 72 * 3600 * 10**9
MOST: Final = 10_000
"""The most applications that are remembered, of those that ended and of those that were rejected; each of the two has
this bound, and the oldest are forgotten first."""

LOOKED_AT: Final = 100
"""The most ended and rejected applications that are looked at for one."""

_FAILING: Final = frozenset({AppState.FAILING, AppState.FAILED})
_NOTHING_SPENT: Final[Mapping[tuple[SpentKind, str], Resources]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EndedGroup:
    """The placeholders of one task group of an application that has ended."""

    name: str
    made: int
    resources: Resources
    replaced: int
    timed_out: int


@dataclass(frozen=True, slots=True, eq=False)
class EndedApplication:
    """An application that completed, failed, was removed or was rejected, as plain values; two records are never equal.

    ``reason`` says why it was rejected; ``queue`` is then the queue that it asked for.
    """

    spec: ApplicationSpec
    queue: str
    user: str
    state: AppState
    submitted_ns: int
    started_ns: int
    ended_ns: int
    states: tuple[StateEntry, ...]
    most_used: Resources
    groups: tuple[EndedGroup, ...]
    spent: Mapping[tuple[SpentKind, str], Resources]
    """The amount times seconds that it used, by kind of use and instance type."""
    reason: str


class Past:
    """Remembers past applications. It keeps no record of the engine alive and needs no timers: old applications are
    removed as new ones come.

    One ID may occur several times.
    """

    def __init__(self) -> None:
        self._finished: deque[EndedApplication] = deque(maxlen=MOST)
        self._rejected: deque[EndedApplication] = deque(maxlen=MOST)

    def remember_finished(self, application: Application, types: ResourceTypes, now_ns: int) -> None:
        """Remembers how *application* ended, which is removed at *now_ns*.

        An application that is removed before it has ended counts as Failed if it was about to fail, and as Completed
        otherwise.
        """
        ended = AppState.FAILED if application.state in _FAILING else AppState.COMPLETED
        states = tuple(application.entered)
        if application.state is not ended:
            states = (*states, StateEntry(now_ns, ended))
        groups = sorted(application.task_groups.items())
        spent = application.spent
        _remember_ended(
            self._finished,
            EndedApplication(
                application.spec,
                application.queue.path,
                application.user,
                ended,
                application.submitted_ns,
                application.started_ns,
                now_ns,
                states,
                types.to_resources(application.most_held()),
                tuple([EndedGroup(name, g.count, g.shape.resources, g.replaced, g.timed_out) for name, g in groups]),
                {kind: types.to_resources(spent[kind]) for kind in sorted(spent)} if spent else _NOTHING_SPENT,
                "",
            ),
        )

    def remember_rejected(self, spec: ApplicationSpec, user: str, reason: str, now_ns: int) -> None:
        """Remembers that the application *spec* of *user* was rejected, for *reason*."""
        states = (StateEntry(now_ns, AppState.REJECTED),)
        ended = EndedApplication(
            spec, spec.queue, user, AppState.REJECTED, now_ns, 0, now_ns, states, NOTHING, (), _NOTHING_SPENT, reason
        )
        _remember_ended(self._rejected, ended)

    def finished_applications(self, now_ns: int) -> list[EndedApplication]:
        """Returns the ended applications that are still remembered at *now_ns*, the oldest first."""
        return [ended for ended in self._finished if ended.ended_ns + REMEMBERED_NS > now_ns]

    def describe_end(self, application_id: str, now_ns: int) -> str:
        """Returns a text about how *application_id* ended lately, or why it was rejected; empty: nothing is known.

        Only the latest few are looked at, because asks for applications that are gone may come by the thousand.
        """
        latest = chain(islice(reversed(self._finished), LOOKED_AT), islice(reversed(self._rejected), LOOKED_AT))
        past = next((past for past in latest if past.spec.application_id == application_id), None)
        if past is None:
            return ""
        timed_out = past.state is AppState.FAILED and any(group.timed_out for group in past.groups)
        why = f": {past.reason}" if past.reason else ", because its placeholders timed out" if timed_out else ""
        return f"; one of that name was {past.state} {(now_ns - past.ended_ns) // 10**9} s ago{why}"

    def rejected_applications(self, now_ns: int) -> list[EndedApplication]:
        """Returns the rejected applications that are still remembered at *now_ns*, the oldest first."""
        return [ended for ended in self._rejected if ended.ended_ns + REMEMBERED_NS > now_ns]


def _remember_ended(known: deque[EndedApplication], application: EndedApplication) -> None:
    while known and known[0].ended_ns + REMEMBERED_NS <= application.ended_ns:
        known.popleft()
    known.append(application)
