"""Reads the bounds against storms of preemption from the configuration (preemption.md 0.2, ``preemption.governor``)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kornel.core.config.text.fields import Field
from kornel.core.config.text.yaml_reader import shorten_text
from kornel.core.domain.preemption_kinds import KINDS, NAMES
from kornel.core.domain.settings import Budget, GovernorSettings, VictimBound
from kornel.shared.quantities import parse_quantity

MS_NS: Final = 10**6


def read_governor(at: Field) -> GovernorSettings:
    """Returns the settings at *at*, each at its default where it is not given."""
    keys = at.mapping(("victims", "window_ms", "cluster", "queue", "application", "cooldown_ms", "loop", "shadow"))
    loop = keys["loop"].mapping(("window_ms", "returns"))
    defaults = GovernorSettings()
    return GovernorSettings(
        victims=_read_bounds(keys["victims"]),
        window_ns=keys["window_ms"].unsigned(defaults.window_ns // MS_NS, least=1) * MS_NS,
        cluster=_read_budget(keys["cluster"], defaults.cluster),
        queue=_read_budget(keys["queue"], defaults.queue),
        application=_read_budget(keys["application"], defaults.application),
        cooldown_ns=keys["cooldown_ms"].unsigned(defaults.cooldown_ns // MS_NS) * MS_NS,
        loop_window_ns=loop["window_ms"].unsigned(defaults.loop_window_ns // MS_NS) * MS_NS,
        loop_returns=loop["returns"].unsigned(defaults.loop_returns),
        shadow=_read_kinds(keys["shadow"]),
    )


def _read_bounds(at: Field) -> Mapping[str, VictimBound]:
    """Returns the bounds by kind: as written, or the default of the kind if nothing is written."""
    bounded = {kind.name: kind for kind in KINDS if kind.bound is not None}
    found: dict[str, VictimBound] = {}
    for name, entry in at.mapping(bounded).items():
        default = bounded[name].bound or VictimBound()
        keys = entry.mapping(("ask", "interval") if bounded[name].serves else ("interval",))
        interval = keys["interval"].unsigned(default.interval)
        found[name] = VictimBound(keys["ask"].unsigned(default.ask) if "ask" in keys else 0, interval)
    return MappingProxyType(found)


def _read_budget(at: Field, default: Budget) -> Budget:
    keys = at.mapping(("victims", "lost"))
    lost: dict[str, int] = {}
    for name, (text, found) in keys["lost"].text_map().items():
        try:
            lost[name] = parse_quantity(name, text)
        except ValueError as error:
            found.error(f"{name or 'resource'}: {error}", "an amount times seconds, written as an amount")
    return Budget(keys["victims"].unsigned(default.victims), MappingProxyType(lost))


def _read_kinds(at: Field) -> frozenset[str]:
    kinds: set[str] = set()
    for name, found in at.texts():
        if name not in NAMES:
            found.error(f"preemption policy {shorten_text(name)} is not known", f"one of {', '.join(NAMES)}")
        kinds.add(name)
    return frozenset(kinds)
