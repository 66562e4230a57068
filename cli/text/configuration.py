"""Writes the history of configurations, and previews of them, as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kornel.cli.text.explain import sum_lines
from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import format_quantities, format_quantity
from kornel.cli.text.tables import ItemT, list_items, wrap_text
from kornel.cli.text.times import format_duration
from kornel.shared.readable_amounts import format_count, format_time
from kornel.v1 import configuration_pb2 as pb

MOST_KEYS: Final = 20
"""The most tasks of one leaf that are named; ``--json`` names all."""


def render_history(versions: Sequence[tuple[str, pb.ConfigurationVersion]]) -> str:
    """Returns one line for each version, the newest first, each beginning with the name that commands take."""
    if not versions:
        return "no configuration has been applied"
    cells: dict[str, Callable[[tuple[str, pb.ConfigurationVersion]], str]] = {
        "version": lambda each: f"{each[0]}{' *' if each[1].in_force else ''}",
        "when": lambda each: format_time(each[1].at_ns),
        "how": lambda each: pb.ConfigurationVersion.Origin.Name(each[1].origin).removeprefix("ORIGIN_").lower(),
        "by": lambda each: each[1].principal or "-",
        "result": lambda each: describe_result(each[1]),
        "for": lambda each: each[1].rm_id or "-",
        "checksum": lambda each: each[1].checksum[:12] or "-",
    }
    lines = [*list_items(versions, cells, ("checksum", "for")), "* in force"]
    if any("/" in name for name, _ in versions):
        lines += wrap_text("RUN/VERSION names a version of an earlier run of the core.")
    return join_lines(lines)


def render_impact(impact: pb.PreviewConfigurationResponse) -> str:
    """Returns the changes by kind; one line if there are none."""
    return join_lines(_render_impact_lines(impact))


def describe_result(version: pb.ConfigurationVersion) -> str:
    """Returns whether *version* came into force, with its warnings and what it did to a rollback, or why it did not."""
    if not version.applied:
        return f"refused: {(version.reason.splitlines() or ['?'])[0]}"
    warnings = len(version.problems)
    said = f"applied, {format_count(warnings, 'warning')}" if warnings else "applied"
    return f"{said}; {version.note}" if version.note else said


def _render_impact_lines(impact: pb.PreviewConfigurationResponse) -> Iterator[str]:
    if not impact.changed:
        yield "nothing would change: this is the configuration in force"
        return
    if impact.refusals:
        yield "it would be refused as things stand:"
        yield from (f"  {refusal}" for refusal in impact.refusals)
        return
    yield f"checksum {impact.checksum}"
    yield from _render_section(
        "partitions",
        impact.partitions,
        {
            "partition": lambda each: each.name,
            "change": lambda each: "added" if each.added else "removed" if each.removed else "changed",
            "apps": lambda each: str(each.application_count),
            "settings": lambda each: _join_settings(each.settings),
        },
    )
    yield from _render_section(
        "queues",
        impact.queues,
        {
            "queue": lambda each: each.path,
            "change": lambda each: pb.QueueChange.Kind.Name(each.kind).removeprefix("KIND_").lower(),
            "apps": lambda each: str(each.application_count),
            "settings": lambda each: _join_settings(each.settings),
        },
    )
    yield from _render_section(
        "queues above their max",
        impact.quota_excesses,
        {
            "queue": lambda each: each.path,
            "type": lambda each: each.type,
            "used": lambda each: format_quantity(each.type, each.used),
            "max": lambda each: format_quantity(each.type, each.max),
            "since": lambda each: "already" if each.already else "then",
        },
    )
    yield from _render_section(
        "users and groups above their limit",
        impact.limit_excesses,
        {
            "queue": lambda each: each.path,
            "who": lambda each: f"{each.kind} {each.name}",
            "what": lambda each: each.type or "applications",
            "has": lambda each: format_quantity(each.type, each.used),
            "limit": lambda each: format_quantity(each.type, each.limit),
            "since": lambda each: "already" if each.already else "then",
        },
    )
    yield from _render_section(
        "applications that would not be placed any more",
        impact.unplaced_applications,
        {
            "application": lambda each: each.application_id,
            "queue": lambda each: each.queue,
            "why": lambda each: each.reason,
        },
    )
    yield from _render_section(
        "quotas that preemption would enforce",
        impact.enforcements,
        {
            "queue": lambda each: each.path,
            "above": lambda each: format_quantities(each.amounts) or "-",
            "after": lambda each: format_duration(each.delay_ns) if each.delay_ns else "at once",
            "goes": lambda each: (
                f"{format_count(len(each.victims), 'task')}: {format_quantities(each.freed)}"
                if each.victims
                else "nobody"
            ),
            "stays above": lambda each: format_quantities(each.unmet) or "-",
        },
    )
    leaving = {victim.key: victim for e in impact.enforcements for victim in e.victims}
    yield from sum_lines([("leave", victim, 1) for victim in leaving.values()], ("leave",))
    for e in impact.enforcements:
        yield from _render_victims(e)
    if not (impact.partitions or impact.queues):
        yield "nothing would change but the text"


def _render_section(title: str, items: Sequence[ItemT], cells: Mapping[str, Callable[[ItemT], str]]) -> Iterator[str]:
    if items:
        yield ""
        yield f"{title}:"
        yield from list_items(items, cells)


def _render_victims(found: pb.QuotaEnforcement) -> Iterator[str]:
    """Yields who would have to leave for the max of one queue, by leaf, and why the rest stays."""
    leaves: dict[str, list[str]] = {}
    for victim in found.victims:
        leaves.setdefault(victim.queue, []).append(victim.key)
    for leaf, keys in leaves.items():
        more = f" and {len(keys) - MOST_KEYS:,} more" if len(keys) > MOST_KEYS else ""
        where = f" of {leaf}" if leaf != found.path else ""
        yield from wrap_text(f"{found.path}: {', '.join(keys[:MOST_KEYS])}{more}{where} would have to leave")
    for reason in found.reasons:
        yield from wrap_text(f"{found.path} stays above its max: {reason}")


def _join_settings(settings: Sequence[pb.SettingChange]) -> str:
    return ", ".join(
        f"{s.name}: {_write_setting(s.name, s.before)} -> {_write_setting(s.name, s.after)}" for s in settings
    )


def _write_setting(name: str, value: str) -> str:
    """Returns a value; an amount in the unit of its type, as everywhere else."""
    label, _, resource_type = name.partition(".")
    is_amount = label in ("guaranteed", "max") and value.isdecimal()
    return format_quantity(resource_type, int(value)) if is_amount else value or "none"
