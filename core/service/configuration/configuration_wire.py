"""Encodes versions of the configuration, and previews, as messages of ``kornel.v1``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kornel.core.config.text.problems import Problem
from kornel.core.service.configuration.configuration_history import Version
from kornel.core.telling.configuration.impact import Impact
from kornel.core.telling.encoding.kornel_v1 import ENCODERS, encode_impact, encode_problem
from kornel.core.telling.encoding.records import made
from kornel.v1 import configuration_pb2 as pb

_encode_version: Final = ENCODERS.add(
    Version, pb.ConfigurationVersion, {"length": made(len, "text")}, given=("in_force",)
)


def version_message(version: Version, in_force: int) -> pb.ConfigurationVersion:
    """Returns *version* without its text; *in_force* is the number of the version in force."""
    return _encode_version(version, in_force=version.number == in_force)


def impact_message(impact: Impact, warnings: Sequence[Problem]) -> pb.PreviewConfigurationResponse:
    """Returns the message with the *impact* of a configuration that was read with *warnings*."""
    return encode_impact(impact, warnings=[encode_problem(warning) for warning in warnings])
