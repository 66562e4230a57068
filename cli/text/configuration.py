"""Writes the history of configurations, and previews of them, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import format_quantities, format_quantity
from kornel.cli.text.tables import format_table, wrap_text
from kornel.cli.text.times import format_duration, format_time
from kornel.shared.readable_amounts import format_count
from kornel.v1 import configuration_pb2 as pb

MOST_KEYS: Final = 20
"""The most tasks of one leaf that are named; ``--json`` names all."""


def render_history(versions: Sequence[tuple[str, pb.ConfigurationVersion]]) -> str:
    """Returns one line for each version, the newest first, each beginning with the name that commands take."""
    heading = ("version", "when", "how", "by", "result", "for", "checksum")
    rows = [
        (
            f"{name}{' *' if version.in_force else ''}",
            format_time(version.at_ns),
            pb.ConfigurationVersion.Origin.Name(version.origin).removeprefix("ORIGIN_").lower(),
            version.principal or "-",
            _describe_result(version),
            version.rm_id or "-",
            version.checksum[:12] or "-",
        )
        for name, version in versions
    ]
    if not rows:
        return "no configuration has been applied"
    lines = [*format_table([heading, *rows], ("checksum", "for")), "* in force"]
    if any("/" in name for name, _ in versions):
        lines += wrap_text("RUN/VERSION names a version of an earlier run of the core.")
    return join_lines(lines)


def render_impact(impact: pb.PreviewConfigurationResponse) -> str:
    """Returns the changes by kind; one line if there are none."""
    return join_lines(_render_impact_lines(impact))


def _describe_result(version: pb.ConfigurationVersion) -> str:
    if not version.applied:
        return f"refused: {version.reason.splitlines()[0]}"
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
        "partitions", ("partition", "change", "apps", "settings"), [_partition_row(p) for p in impact.partitions]
    )
    yield from _render_section(
        "queues", ("queue", "change", "apps", "settings"), [_queue_row(q) for q in impact.queues]
    )
    yield from _render_section(
        "queues above their max",
        ("queue", "type", "used", "max", "since"),
        [
            (
                e.path,
                e.type,
                format_quantity(e.type, e.used),
                format_quantity(e.type, e.max),
                _describe_since(e.already),
            )
            for e in impact.quota_excesses
        ],
    )
    yield from _render_section(
        "users and groups above their limit",
        ("queue", "who", "what", "has", "limit", "since"),
        [
            (
                e.path,
                f"{e.kind} {e.name}",
                e.type or "applications",
                format_quantity(e.type, e.used),
                format_quantity(e.type, e.limit),
                _describe_since(e.already),
            )
            for e in impact.limit_excesses
        ],
    )
    yield from _render_section(
        "applications that would not be placed any more",
        ("application", "queue", "why"),
        [(a.application_id, a.queue, a.reason) for a in impact.unplaced_applications],
    )
    yield from _render_section(
        "quotas that preemption would enforce",
        ("queue", "above", "after", "goes", "stays above"),
        [
            (
                e.path,
                format_quantities(e.amounts) or "-",
                format_duration(e.delay_ns) if e.delay_ns else "at once",
                f"{format_count(len(e.victims), 'task')}: {format_quantities(e.freed)}" if e.victims else "nobody",
                format_quantities(e.unmet) or "-",
            )
            for e in impact.enforcements
        ],
    )
    for e in impact.enforcements:
        yield from _render_victims(e)
    if not (impact.partitions or impact.queues):
        yield "nothing would change but the text"


def _render_section(title: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield ""
        yield f"{title}:"
        yield from format_table([heading, *rows])


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


def _partition_row(found: pb.PartitionChange) -> tuple[str, ...]:
    change = "added" if found.added else "removed" if found.removed else "changed"
    return (found.name, change, str(found.application_count), _join_settings(found.settings))


def _queue_row(found: pb.QueueChange) -> tuple[str, ...]:
    kind = pb.QueueChange.Kind.Name(found.kind).removeprefix("KIND_").lower()
    return (found.path, kind, str(found.application_count), _join_settings(found.settings))


def _join_settings(settings: Sequence[pb.SettingChange]) -> str:
    return ", ".join(f"{s.name}: {s.before or 'none'} -> {s.after or 'none'}" for s in settings)


def _describe_since(already: bool) -> str:
    return "already" if already else "then"
