"""The functions that records refer to, by the names that they have in snapshots."""

from __future__ import annotations

from typing import Final

from kornel.core.engine import lifecycle
from kornel.core.engine.configuration import configure
from kornel.core.engine.gangs import approval, gang_turns, gang_vetting, placeholders, shortfalls
from kornel.core.engine.scheduling import autoscaling, lapsing, limit_savings, reserving, vetting
from kornel.core.model import task_groups
from kornel.core.policies import application_order, queue_order
from kornel.core.preemption import budgets, consulting, eviction
from kornel.core.preemption.guarantee.attempts import drive as guarantee_drive
from kornel.core.preemption.guarantee.attempts import gang_consulting, gang_plans
from kornel.core.preemption.monitor import drive as monitor_drive
from kornel.core.preemption.monitor import taking as monitor_taking
from kornel.core.preemption.quota import timers as quota_timers
from kornel.core.preemption.quota.by_hand import drive as by_hand
from kornel.core.snapshot.kept import named_of
from kornel.core.state import partition_state
from kornel.core.state.waiting import admission, backoff, inquiries, pausing, rooms

FUNCTIONS: Final = {
    **named_of(admission, "review_start"),
    **named_of(application_order, "application_key", "application_turn_key", "newcomer_key"),
    **named_of(approval, "_decide_pairs", "_drop_question", "_name_nodes"),
    **named_of(autoscaling, "_look_regularly"),
    **named_of(backoff, "_begin_anew"),
    **named_of(configure, "_clean_again"),
    "preemption.guarantee.attempts.consulting._decide_node": consulting._decide_node,
    "preemption.guarantee.attempts.consulting._decide_victims": consulting._decide_victims,
    "preemption.guarantee.attempts.consulting._drop_questions": consulting._drop_questions,
    **named_of(by_hand, "_look_at_victims"),
    **named_of(eviction, "_look_at_victims", "_look_for_room", "_rearm_if_waiting"),
    **named_of(gang_turns, "_end_gathering"),
    **named_of(guarantee_drive, "_note_end"),
    **named_of(gang_vetting, "_note_answer"),
    **named_of(inquiries, "_decide_beside", "_put_in_turn"),
    **named_of(lifecycle, "_end_state", "_forget_old"),
    **named_of(lapsing, "_look_at", "_look_at_gang"),
    **named_of(limit_savings, "_look_at"),
    "partition.scheduling.loans._do_nothing": partition_state._do_nothing,
    **named_of(monitor_drive, "_begin_round"),
    "preemption.monitor.drive._look_at_served": monitor_taking._look_at_served,
    "preemption.pacing._offer_again": budgets._offer_again,
    **named_of(pausing, "_look_at_refusals"),
    **named_of(placeholders, "_note_timeout"),
    **named_of(queue_order, "queue_turn_key"),
    **named_of(quota_timers, "_look_at_queues", "_look_at_victims"),
    **named_of(reserving, "_decide_reservation", "_drop_question"),
    **named_of(rooms, "turn_key"),
    **named_of(shortfalls, "_end_gang", "_look_at_members"),
    **named_of(task_groups, "_by_age", "by_order"),
    **named_of(gang_consulting, "_allow_open_questions", "_note_last_victim", "_note_refused_nodes"),
    "preemption.guarantee.attempts.gang_drive._look_at_hold": gang_plans._look_at_hold,
    "preemption.guarantee.attempts.gang_drive._look_at_victims": gang_plans._look_at_victims,
    **named_of(vetting, "_apply_answer", "_decide_placement", "_drop_question", "_offer_in_turn"),
}
"""Functions that records refer to: those called by timers or when the shim has answered, and those that return sort
keys."""
