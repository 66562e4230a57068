"""Books what placeholders hold, and which of them asks may replace."""

from __future__ import annotations

from kornel.core.model.allocations import Allocation
from kornel.core.model.applications import Application
from kornel.core.model.shapes import Pairs, book_amounts, unbook_amounts
from kornel.core.state.partition_state import PartitionState


def keep_placeholder_from_use(placeholder: Allocation) -> None:
    """Stops asks from taking the place of *placeholder*, which was asked to leave."""
    placeholder.application.task_groups[placeholder.spec.task_group].free.discard(placeholder)


def hold_placeholder(state: PartitionState, placeholder: Allocation) -> None:
    """Counts *placeholder*, which is allocated and which asks of its task group may replace from now on."""
    application = placeholder.application
    book_amounts(application.placeholder, placeholder.shape.pairs)
    application.placeholder_count += 1
    task_group = application.task_groups[placeholder.spec.task_group]
    task_group.free.add(placeholder)
    state.note_pairs(application, task_group)


def drop_placeholder(placeholder: Allocation) -> None:
    """Counts *placeholder*, which is gone, no longer."""
    application = placeholder.application
    note_placeholder_peak(application, placeholder.shape.pairs)
    unbook_amounts(application.placeholder, placeholder.shape.pairs)
    application.placeholder_count -= 1
    keep_placeholder_from_use(placeholder)


def note_placeholder_peak(application: Application, pairs: Pairs) -> None:
    """Raises the peak of *application* to the present usage of its placeholders, before they lose some of the types in
    *pairs*."""
    held, peak = application.placeholder, application.peak
    for t, _ in pairs:
        if held[t] > peak[t]:
            peak[t] = held[t]
