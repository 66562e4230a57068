"""Remembers applications that have ended or were rejected, for three days and up to a number (rest.md 3, R16)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from types import MappingProxyType
from typing import Final

from kornel.core.domain.application_states import AppState, StateEntry
from kornel.core.domain.commands import ApplicationSpec
from kornel.core.domain.resources import NOTHING, Resources
from kornel.core.model.applications import Application, SpentKind
from kornel.core.model.shapes import ResourceTypes
from kornel.core.state.options import MOST_ENDED

REMEMBERED_NS: Final = 72 * 3600 * 10**9

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

    ``reason`` says why it was rejected; ``queue`` is then the queue that it asked for. ``removed``: the shim removed
    it, so it does not hear of it again.
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
    removed: bool = False


class Past:
    """Remembers past applications, and keeps no record of the engine alive. One ID may occur several times."""

    def __init__(self) -> None:
        self.most = MOST_ENDED
        """The most applications that are remembered, of those that ended and of those that were rejected; each of the
        two has this bound."""
        self._finished: deque[EndedApplication] = deque()
        self._rejected: deque[EndedApplication] = deque()
        self.looks_ns: int | None = None
        """The time of the next look at the oldest; past or ``None``: nothing was remembered then."""

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
        self._finished.append(
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
            )
        )

    def remember_rejected(self, spec: ApplicationSpec, user: str, reason: str, now_ns: int) -> None:
        """Remembers that the application *spec* of *user* was rejected, for *reason*."""
        states = (StateEntry(now_ns, AppState.REJECTED),)
        ended = EndedApplication(
            spec, spec.queue, user, AppState.REJECTED, now_ns, 0, now_ns, states, NOTHING, (), _NOTHING_SPENT, reason
        )
        self._rejected.append(ended)

    def note_removed(self, application: Application) -> None:
        """Notes that the shim removed *application*, the latest that is remembered, unless it is not remembered."""
        if self._finished and self._finished[-1].spec is application.spec:
            self._finished.append(replace(self._finished.pop(), removed=True))

    def drop_old(self, now_ns: int) -> list[EndedApplication]:
        """Forgets whoever ended three days before *now_ns*, and the oldest where there are too many. Returns them,
        those that ended before those that were rejected, and the oldest of each first."""
        dropped = []
        for known in (self._finished, self._rejected):
            while known and (len(known) > self.most or known[0].ended_ns + REMEMBERED_NS <= now_ns):
                dropped.append(known.popleft())
        return dropped

    def next_due_ns(self) -> int | None:
        """Returns when the next application is to be forgotten because of its age, or ``None`` if there is none."""
        return min(
            [known[0].ended_ns + REMEMBERED_NS for known in (self._finished, self._rejected) if known], default=None
        )

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
        return f"; one of that name ended {(now_ns - past.ended_ns) // 10**9} s ago as {past.state}{why}"

    def rejected_applications(self, now_ns: int) -> list[EndedApplication]:
        """Returns the rejected applications that are still remembered at *now_ns*, the oldest first."""
        return [ended for ended in self._rejected if ended.ended_ns + REMEMBERED_NS > now_ns]
