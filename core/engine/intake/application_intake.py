"""Handles application requests: checks and answers all additions, then carries out all removals (protocol.md 6)."""

from __future__ import annotations

from kornel.core.domain.commands import ApplicationRef, ApplicationSpec
from kornel.core.domain.effects import ApplicationAccepted, ApplicationRejected
from kornel.core.domain.names import (
    LONGEST_GROUPS,
    LONGEST_NAME,
    LONGEST_OWNER,
    LONGEST_PATH,
    LONGEST_TAGS,
    MOST_GROUPS,
    USER_NAME,
    is_user_name,
    items_length,
    length_flaw,
    show_name,
)
from kornel.core.domain.reasons import Ignored, Rejection
from kornel.core.domain.resources import MAX_TYPES
from kornel.core.domain.settings import SortPolicy
from kornel.core.engine import lifecycle
from kornel.core.engine.configuration import dynamic_queues
from kornel.core.engine.configuration.dynamic_queues import Prospect
from kornel.core.engine.intake import removal
from kornel.core.model.applications import Application
from kornel.core.policies.placement.applicant import Applicant, applicant_of
from kornel.core.policies.placement.decide import Placed, Unplaced, place_applicant
from kornel.core.policies.placement.namespace_limits import namespace_limits
from kornel.core.state.books import user_accounting
from kornel.core.state.partition_state import PartitionState
from kornel.core.state.waiting.gathering import bind_members


def add(state: PartitionState, spec: ApplicationSpec, now_ns: int) -> None:
    """Adds an application, or rejects it for the first check that fails, in the order of protocol.md 6.1."""
    too_long = _refuse_lengths(spec)
    if too_long is not None:
        state.effects.append(ApplicationRejected(spec.application_id, too_long, state.name))
        return
    applicant = applicant_of(spec)
    refused = _refuse_identity(state, spec, applicant)
    if refused is not None:
        _reject_application(state, spec, refused, now_ns)
        return
    if state.recording:
        state.events.application_created(spec)
    found = find_leaf(state, spec, applicant)
    if isinstance(found, str):
        _reject_application(state, spec, found, now_ns)
        return
    leaf = dynamic_queues.enter_leaf(state, *found)
    application = Application(spec, leaf, applicant.user, now_ns, state.nothing_held)
    if spec.gang_style or spec.placeholder_ask is not None:
        bind_members(state, application)
    leaf.applications[spec.application_id] = application
    state.applications[spec.application_id] = application
    user_accounting.open_accounts(state, application)
    if state.recording:
        state.events.application_added(application)
    state.effects.append(ApplicationAccepted(spec.application_id, state.name, leaf.path, applicant.user))


def find_leaf(state: PartitionState, spec: ApplicationSpec, applicant: Applicant) -> tuple[Placed, Prospect] | str:
    """Returns the leaf for *spec* by rows 7 to 9 of protocol.md 6.1, or the rejection; changes nothing."""
    placed = place_applicant(state.placement_rules, state.queues, applicant)
    if isinstance(placed, Unplaced):
        return f"{Rejection.NO_QUEUE}: queue {show_name(spec.queue)}: {'; '.join(placed.outcomes)}"
    return judge_leaf(state, spec, placed, applicant)


def judge_leaf(
    state: PartitionState, spec: ApplicationSpec, placed: Placed, applicant: Applicant
) -> tuple[Placed, Prospect] | str:
    """Returns the leaf at *placed* with its limits for *applicant*, or the rejection of a gang there."""
    prospect = dynamic_queues.find_prospect(state, placed, namespace_limits(applicant.tags))
    return _refuse_gang(state, spec, prospect) or (placed, prospect)


def remove(state: PartitionState, ref: ApplicationRef, now_ns: int) -> None:
    """Removes the application that *ref* names; an unknown one is ignored."""
    application = state.applications.get(ref.application_id)
    if application is None:
        state.ignore_entry(Ignored.UNKNOWN_APPLICATION, ref.application_id)
        return
    removal.remove_application(state, application, now_ns)


def _reject_application(state: PartitionState, spec: ApplicationSpec, reason: str, now_ns: int) -> None:
    refused = ApplicationRejected(spec.application_id, reason, state.name, spec.queue, applicant_of(spec).user)
    state.effects.append(refused)
    if not reason.startswith((Rejection.APPLICATION_EXISTS, Rejection.INVALID_ID)):
        lifecycle.keep_rejected(state, spec, applicant_of(spec).user, reason, now_ns)


def _refuse_lengths(spec: ApplicationSpec) -> str | None:
    """Returns the rejection of a name that is too long, before any other check reads the names; ``None``: none is."""
    lengths = (
        ("the application's ID", len(spec.application_id), LONGEST_NAME),
        ("the queue's path", len(spec.queue), LONGEST_PATH),
        ("the user's name", len(spec.user), LONGEST_OWNER),
        ("a group", max(map(len, spec.groups), default=0), LONGEST_NAME),
        ("the list of groups", sum(map(len, spec.groups)), LONGEST_GROUPS),
        ("the style of gang scheduling", len(spec.gang_style), LONGEST_NAME),
        ("a tag's key", max([len(key) for key, _ in spec.tags], default=0), LONGEST_NAME),
        ("the list of tags", items_length(spec.tags), LONGEST_TAGS),
    )
    for what, length, most in lengths:
        if length > most:
            return f"{Rejection.NAME_TOO_LONG}: {length_flaw(what, length, most)}"
    if len(spec.groups) > MOST_GROUPS:
        return (
            f"{Rejection.NAME_TOO_LONG}: the list of groups has {len(spec.groups):,} entries, at most {MOST_GROUPS:,}"
        )
    return None


def _refuse_identity(state: PartitionState, spec: ApplicationSpec, applicant: Applicant) -> str | None:
    """Returns the rejection of an application by rows 2 to 4 of protocol.md 6.1, before placement chooses a queue;
    ``None``: there is none."""
    if not spec.application_id:
        return f"{Rejection.INVALID_ID}: an application needs an ID"
    if refused := refuse_user(spec, applicant):
        return refused
    if spec.application_id in state.applications:
        return f"{Rejection.APPLICATION_EXISTS}: application {spec.application_id} exists already"
    return None


def refuse_user(spec: ApplicationSpec, applicant: Applicant) -> str | None:
    """Returns the rejection of the owner of *spec*; ``None``: there is none."""
    if not is_user_name(applicant.user):
        return f"{Rejection.USER_INVALID}: {show_name(applicant.user)} is not {USER_NAME}"
    if spec.unresolved and not spec.groups and not applicant.forced:
        return f"{Rejection.USER_INVALID}: groups of {show_name(applicant.user)} cannot be found: {spec.unresolved}"
    return None


def _refuse_gang(state: PartitionState, spec: ApplicationSpec, prospect: Prospect) -> str | None:
    """Returns the rejection of a gang by rows 8 and 9 of protocol.md 6.1, at the leaf as the application would find it;
    ``None``: there is none. The size of the cluster is not a limit."""
    gang = spec.placeholder_ask
    if gang is None or gang.is_zero():
        return None
    if gang.has_negative():
        return f"{Rejection.INVALID_RESOURCE}: placeholderAsk has a negative quantity"
    if prospect.properties.sort_policy is SortPolicy.FAIR:
        return f"{Rejection.GANG_NEEDS_FIFO}: queue {prospect.path} does not sort fifo"
    if len(gang) > MAX_TYPES:
        return f"{Rejection.INVALID_RESOURCE}: placeholderAsk has more than {MAX_TYPES} resource types"
    longest = max(map(len, gang))
    if longest > LONGEST_NAME:
        return f"{Rejection.INVALID_RESOURCE}: {length_flaw('a resource type', longest, LONGEST_NAME)}"
    above = [(queue.path, queue.max) for queue in prospect.parents[:-1]]
    for path, ceilings in [(prospect.path, prospect.max), *above]:
        for name, amount in sorted(gang.items(), key=lambda entry: state.types.known_index(entry[0]) or 0):
            t = state.types.known_index(name)
            most = ceilings.get(t) if t is not None else None
            if most is not None and amount > most:
                return f"{Rejection.GANG_TOO_LARGE}: {name} {amount} is above the max {most} of {path}"
    return None
