"""Serves ``kornel.v1.ReadService``: the state of the core, in pages that never keep the engine waiting."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Final

from structlog.typing import FilteringBoundLogger

from kornel.core.domain.application_states import AppState
from kornel.core.domain.names import is_user_name
from kornel.core.preemption.kind import DecisionSource, Kind
from kornel.core.preemption.registry import SOURCES
from kornel.core.service.calls.long_answers import MOST_PAGES, LongAnswers, fill_answer
from kornel.core.service.calls.rpc import Encoded, Service
from kornel.core.service.configuration.rollbacks import Rollback
from kornel.core.service.connections.callers import Permission, caller
from kornel.core.service.events.refusals import Refusal, RefusalKeeper, RefusalKind
from kornel.core.service.machine.loop_time import in_turns
from kornel.core.service.managers.health import HealthKeeper
from kornel.core.service.managers.managers import Managers
from kornel.core.service.streams.presence import Presence
from kornel.core.service.wire.status_codes import InvalidRequest, NotFound
from kornel.core.telling.allocations.explanation import Blocker
from kornel.core.telling.applications.application_views import ApplicationSummary, ApplicationView
from kornel.core.telling.claims.claim_views import ClaimView, UnknownClaimKind, select_claims
from kornel.core.telling.encoding.kornel_v1 import (
    ENCODERS,
    encode_application,
    encode_application_summary,
    encode_blocker,
    encode_claim,
    encode_domain,
    encode_ended_summary,
    encode_health,
    encode_level,
    encode_node,
    encode_node_summary,
    encode_queue,
)
from kornel.core.telling.explain import FirstBlockers
from kornel.core.telling.name_search import FoundName
from kornel.core.telling.reader import PartitionReader
from kornel.v1 import read_pb2 as pb

_USUAL: Final = 500
_MOST: Final = 5_000
_QUEUES: Final = 1_000
_USUAL_FOUND: Final = 20
_MOST_FOUND: Final = 1_000
"""The most names of one kind in an answer."""
_MOST_WAITS: Final = 100
_WAITS_BY: Final[Mapping[str, Callable[[ApplicationSummary], str]]] = {
    "": attrgetter("application_id"),
    "application": attrgetter("application_id"),
    "queue": attrgetter("queue"),
    "user": attrgetter("user"),
}
_LONGEST_SEARCHED: Final = 512
_MOST_TAGS: Final = 64
_REFUSAL_KINDS: Final = {pb.RefusalKind.Value(f"REFUSAL_KIND_{kind.name}"): kind for kind in RefusalKind}
encode_refusal: Final = ENCODERS.add(Refusal, pb.Refusal)
_encode_found: Final = ENCODERS.add(FoundName, pb.FoundName)
_encode_presence: Final = ENCODERS.add(Presence, pb.HeldManager, {"open_streams": "streams"})
_encode_rollback: Final = ENCODERS.add(
    Rollback, pb.HeldRollback, {"since_ns": "at_ns", "by": "principal"}, left_out=("text", "rm_id", "brought")
)
_STATES: Final = {state.lower(): state for state in AppState}


class ReadService(Service):
    """Serves ``kornel.v1.ReadService`` from the partitions of *managers*."""

    described = pb.DESCRIPTOR.services_by_name["ReadService"]

    def __init__(
        self, managers: Managers, health: HealthKeeper, refusals: RefusalKeeper, *, logger: FilteringBoundLogger
    ) -> None:
        super().__init__(logger)
        self._managers = managers
        self._reader = managers.reader
        self._health = health
        self._refusals = refusals
        self._lists = LongAnswers(at_once=1, waiting=MOST_PAGES)

    async def _list_queues(self, request: pb.ListQueuesRequest) -> pb.ListQueuesResponse:
        views = self._managers.find_partition(request.partition)
        path = request.path.lower() or "root"
        if not views.has_queue(path):
            raise NotFound(f"no queue {request.path!r} in partition {request.partition or 'default'!r}")
        skip, size = _number_of(request.page_token), _page_size(request.page_size, _QUEUES, _QUEUES)
        page = await self._lists.make_page(lambda: islice(views.queues(path), skip, None), size, encode_queue)
        return pb.ListQueuesResponse(queues=page.encoded, next_page_token=_token(str(skip + size)) if page.more else "")

    async def _get_queue(self, request: pb.GetQueueRequest) -> pb.GetQueueResponse:
        """Returns a queue. Its administrators may see it, and everybody who may read."""
        caller().require_for_queue(
            Permission.READ, partial(self._reader.may_administer, request.partition, request.path)
        )
        found = next(self._managers.find_partition(request.partition).queues(request.path.lower(), subtree=False), None)
        if found is None:
            raise NotFound(f"no queue {request.path!r} in partition {request.partition or 'default'!r}")
        return pb.GetQueueResponse(queue=encode_queue(found))

    async def _list_applications(self, request: pb.ListApplicationsRequest) -> pb.ListApplicationsResponse:
        views = self._managers.find_partition(request.partition)
        test, size = _make_test(request), _page_size(request.page_size, _USUAL, _MOST)
        if request.kind == pb.APPLICATION_KIND_UNSPECIFIED:
            after = _decode_token(request.page_token)
            page = await self._lists.make_page(
                lambda: views.application_summaries(after), size, encode_application_summary, test
            )
            following = _token(page.last.application_id) if page.more and page.last is not None else ""
            return pb.ListApplicationsResponse(applications=page.encoded, next_page_token=following)
        end = _end_of(request.page_token)

        def ended() -> Iterable[ApplicationView]:
            past = (
                views.rejected_applications()
                if request.kind == pb.APPLICATION_KIND_REJECTED
                else views.finished_applications()
            )
            ordered = sorted(past, key=lambda view: (view.finished_ns, view.application_id))
            return (view for view in ordered if (view.finished_ns, view.application_id) > end)

        found = await self._lists.make_page(ended, size, encode_ended_summary, test)
        last = found.last
        following = _token(f"{last.finished_ns} {last.application_id}") if found.more and last is not None else ""
        return pb.ListApplicationsResponse(applications=found.encoded, next_page_token=following)

    async def _get_application(self, request: pb.GetApplicationRequest) -> pb.GetApplicationResponse:
        views, wanted = self._managers.find_partition(request.partition), request.application_id
        found = views.application(wanted)
        if found is None:
            ended = [
                view
                for view in (*views.finished_applications(), *views.rejected_applications())
                if view.application_id == wanted
            ]
            found = max(ended, key=lambda view: view.finished_ns, default=None)
        if found is None:
            raise NotFound(f"no application {wanted!r} in partition {request.partition or 'default'!r}")
        return encode_application(found)

    async def _list_waits(self, request: pb.ListWaitsRequest) -> Encoded:
        views, named = self._managers.find_partition(request.partition), _WAITS_BY.get(request.by)
        if named is None:
            raise InvalidRequest(f"by is {request.by!r}, not one of {', '.join(filter(None, _WAITS_BY))}")
        most = _page_size(request.limit, _USUAL_FOUND, _MOST_WAITS, "limit")
        test = _make_test(pb.ListApplicationsRequest(queue=request.queue, user=request.user))
        answer = partial(_find_waits, views, test, named, most)
        return Encoded(await self._managers.questions.ask_about(self._reader.size, answer))

    async def _list_nodes(self, request: pb.ListNodesRequest) -> pb.ListNodesResponse:
        views, size = self._managers.find_partition(request.partition), _page_size(request.page_size, _USUAL, _MOST)
        after = _decode_token(request.page_token)
        page = await self._lists.make_page(
            lambda: views.node_summaries(
                after,
                stranded=request.stranded,
                attributes=request.attributes.items(),
                node_ids=set(request.node_ids),
            ),
            size,
            encode_node_summary,
            lambda node: not (request.only_draining and node.schedulable),
        )
        following = _token(page.last.node_id) if page.more and page.last is not None else ""
        return pb.ListNodesResponse(nodes=page.encoded, next_page_token=following, attributes=request.attributes)

    async def _get_node(self, request: pb.GetNodeRequest) -> pb.GetNodeResponse:
        found = self._managers.find_partition(request.partition).node(request.node_id)
        if found is None:
            raise NotFound(f"no node {request.node_id!r} in partition {request.partition or 'default'!r}")
        return encode_node(found)

    async def _list_domains(self, request: pb.ListDomainsRequest) -> pb.ListDomainsResponse:
        views, wanted = self._managers.find_partition(request.partition), request.level
        levels = views.topology_levels()
        if wanted and all(level.name != wanted for level in levels):
            known = f"its levels are {', '.join(level.name for level in levels)}" if levels else "it has no topology"
            raise NotFound(f"partition {request.partition or 'default'!r} has no level {wanted!r}: {known}")
        skip, size = _number_of(request.page_token), _page_size(request.page_size, _USUAL, _MOST)
        page = await self._lists.make_page(lambda: islice(views.domains(wanted), skip, None), size, encode_domain)
        return pb.ListDomainsResponse(
            levels=map(encode_level, levels),
            domains=page.encoded,
            next_page_token=_token(str(skip + size)) if page.more else "",
        )

    async def _list_claims(self, request: pb.ListClaimsRequest) -> pb.ListClaimsResponse:
        views, after = self._managers.find_partition(request.partition), _decode_token(request.page_token)
        size = _page_size(request.page_size, _USUAL, _MOST)

        def selected() -> Iterable[ClaimView]:
            return select_claims(
                views.claims(), request.kind, node_id=request.node_id, application_id=request.application_id
            )

        try:
            page = await self._lists.make_page(selected, size, encode_claim, lambda claim: claim.sort_key > after)
        except UnknownClaimKind as error:
            raise InvalidRequest(str(error)) from error
        following = _token(page.last.sort_key) if page.more and page.last is not None else ""
        return pb.ListClaimsResponse(claims=page.encoded, next_page_token=following)

    async def _get_health_report(self, _request: pb.GetHealthReportRequest) -> pb.GetHealthReportResponse:
        return encode_health(await self._health.check())

    async def _list_refusals(self, request: pb.ListRefusalsRequest) -> pb.ListRefusalsResponse:
        kind = _REFUSAL_KINDS.get(request.kind)
        if request.kind and kind is None:
            raise InvalidRequest(f"{request.kind} is no kind of refusal")
        partition = request.partition and self._reader.full_name(request.partition)
        found = self._refusals.newest((kind,) if kind is not None else (), partition)
        counts = {str(each): self._refusals.counts[each] for each in RefusalKind}
        limit = _page_size(request.limit, len(found), len(found), "limit")
        return pb.ListRefusalsResponse(refusals=await fill_answer(map(encode_refusal, found[:limit])), counts=counts)

    async def _find_names(self, request: pb.FindNamesRequest) -> pb.FindNamesResponse:
        views, text = self._managers.find_partition(request.partition), request.text.strip()
        if not text or len(text) > _LONGEST_SEARCHED:
            raise InvalidRequest(f"give a text that names contain, of 1 to {_LONGEST_SEARCHED} characters")
        most = _page_size(request.limit, _USUAL_FOUND, _MOST_FOUND, "limit")
        counts: Counter[str] = Counter()
        found: list[FoundName] = []
        async with self._lists.count_making():
            async for each in in_turns(views.search_names(text)):
                if each is not None:
                    counts[each.kind] += 1
                    if counts[each.kind] <= most:
                        found.append(each)
            told = await fill_answer(map(_encode_found, found))
        listed = Counter(each.kind for each in told)
        return pb.FindNamesResponse(found=told, more=[kind for kind, count in counts.items() if count > listed[kind]])

    async def _find_queue(self, request: pb.FindQueueRequest) -> pb.FindQueueResponse:
        views = self._managers.find_partition(request.partition)
        if not is_user_name(request.user):
            raise InvalidRequest("Invalid user name")
        if len(request.tags) > _MOST_TAGS:
            raise InvalidRequest(f"give at most {_MOST_TAGS} tags")
        found = views.find_placement(request.user, request.groups, request.queue, request.tags)
        return pb.FindQueueResponse(**found._asdict())

    async def _get_holds(self, _request: pb.GetHoldsRequest) -> pb.GetHoldsResponse:
        drained = (
            pb.HeldNode(
                partition=views.shown_name,
                node_id=node_id,
                by=drain.by,
                since_ns=drain.at_ns,
                registered=views.has_node(node_id),
            )
            for views in list(self._reader.partitions())
            for node_id, drain in sorted(views.operator_drains().items())
        )
        present = [found for place in self._managers.registered if (found := place.runner.presence) is not None]
        held = [each for place in self._managers.registered if (each := place.configurator.rollback_held) is not None]
        return pb.GetHoldsResponse(
            drained_nodes=await fill_answer(drained),
            manager=next((_encode_presence(each) for each in sorted(present, key=lambda each: not each.gone)), None),
            rollback=_encode_rollback(held[0]) if held else None,
        )

    async def _list_preemption_kinds(self, _request: pb.ListPreemptionKindsRequest) -> pb.ListPreemptionKindsResponse:
        return pb.ListPreemptionKindsResponse(kinds=[_encode_source(source) for source in SOURCES.values()])


def _encode_source(source: DecisionSource) -> pb.PreemptionKind:
    laws, law = (source.laws, source.allowed_by) if isinstance(source, Kind) else ((), "")
    return pb.PreemptionKind(
        name=source.name,
        laws=laws,
        law=law,
        colour=source.colour,
        outcomes={
            outcome: pb.PreemptionEnding(leaves=ending.leaves, tone=ending.tone)
            for outcome, ending in source.outcomes.items()
        },
    )


def _make_test(request: pb.ListApplicationsRequest) -> Callable[[ApplicationSummary | ApplicationView], bool]:
    state = _STATES.get(request.state.lower())
    if request.state and state is None:
        raise InvalidRequest(f"no application has state {request.state!r}, the states are {', '.join(AppState)}")
    queue, user = request.queue.lower(), request.user

    def passes(summary: ApplicationSummary | ApplicationView) -> bool:
        return (
            (state is None or summary.state is state)
            and (not user or summary.user == user)
            and (not queue or summary.queue == queue or summary.queue.startswith(f"{queue}."))
        )

    return passes


def _page_size(wanted: int, usual: int, most: int, field: str = "page_size") -> int:
    if wanted < 0:
        raise InvalidRequest(f"{field} {wanted} is below 0")
    return min(wanted or usual, most)


def _token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def _decode_token(token: str) -> str:
    """Returns the text from which :func:`_token` made *token*. Raises :class:`InvalidRequest`."""
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise InvalidRequest(f"page_token {token[:40]!r} is none that this list gave") from error


def _number_of(token: str) -> int:
    text = _decode_token(token)
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidRequest(f"page_token {token[:40]!r} is none that this list gave")
    return int(text)


def _end_of(token: str) -> tuple[int, str]:
    """Returns the position in *token*, after which the next page begins, as the time and the number of an ended
    application."""
    text = _decode_token(token)
    if not text:
        return -1, ""
    at, blank, name = text.partition(" ")
    if not blank or not at.isascii() or not at.isdigit() or len(at) > 30:
        raise InvalidRequest(f"page_token {token[:40]!r} is none that this list gave")
    return int(at), name


def _find_waits(
    views: PartitionReader,
    test: Callable[[ApplicationSummary], bool],
    named: Callable[[ApplicationSummary], str],
    most: int,
) -> bytes:
    """Returns *most* of those that have waited longest, encoded; *named* gives the name of an application's group."""
    waiting = [each for each in views.application_summaries() if each.asks and test(each)]
    groups: dict[str, list[ApplicationSummary]] = {}
    for each in sorted(waiting, key=attrgetter("oldest_ask_ns")):
        groups.setdefault(named(each), []).append(each)
    shown = list(islice(groups.items(), most))
    obstacles = views.explain(FirstBlockers(tuple(longest[0].oldest_ask for _, longest in shown))) or ()
    waits = [_encode_wait(*group, obstacle) for group, obstacle in zip(shown, obstacles, strict=True)]
    return pb.ListWaitsResponse(waits=waits, wait_count=len(groups)).SerializeToString()


def _encode_wait(name: str, longest: list[ApplicationSummary], obstacle: Blocker | None) -> pb.Wait:
    """Returns the applications that have waited *longest* as those of *name*."""
    first = longest[0]
    return pb.Wait(
        name=name,
        application_count=len(longest),
        ask_count=sum(each.asks for each in longest),
        ask_key=first.oldest_ask,
        oldest_ask_ns=first.oldest_ask_ns,
        application_id=first.application_id,
        queue=first.queue,
        user=first.user,
        obstacle=encode_blocker(obstacle) if obstacle is not None else None,
    )
