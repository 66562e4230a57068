"""Notes as messages. A core writes them for the next core, in addition to the calls of its engine.

Texts of configurations are long and occur repeatedly, so a text that a kept version has is replaced by the number of
that version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.journal.content.by_name import Codec
from kornel.core.service.configuration.configuration_history import (
    ConfigurationHistory,
    ConfigurationNote,
    ConfigurationState,
    Version,
)
from kornel.core.service.configuration.rollbacks import Rollback
from kornel.v1 import journal_pb2 as pb

MOST_PROBLEMS: Final = 100
"""The most problems of a version that are written."""

_VERSION: Final = Codec(Version, pb.JournalVersion)


def encode_note(note: ConfigurationNote, kept: ConfigurationHistory) -> pb.JournalNote:
    """Returns *note* as a message. *kept* are the kept versions, including those of *note*."""
    message = pb.JournalNote()
    for version in note.versions:
        _VERSION.write(replace(version, problems=version.problems[:MOST_PROBLEMS]), message.versions.add())
    numbers = {version.text: version.number for version in kept.kept_versions()}
    state, written = note.state, message.state
    _write_text(state.brought, written.brought, numbers)
    for origin, text in state.brought_by:
        each = written.brought_by.add(origin=origin)
        _write_text(text, each.text, numbers)
    written.file_holds = state.file_holds
    last = state.last
    written.last.rm_id, written.last.policy_group, written.last.of_file = last.rm_id, last.policy_group, last.of_file
    written.last.extra_config.extend(pb.JournalPair(name=name, value=value) for name, value in last.extra_config)
    _write_text(last.config, written.last_text, numbers)
    if state.rollback is not None:
        held = state.rollback
        written.rollback.version, written.rollback.rm_id, written.rollback.at_ns = held.version, held.rm_id, held.at_ns
        written.rollback.principal, written.rollback.kept_out = held.principal, held.kept_out
        _write_text(held.text, written.rollback.text, numbers)
        for text in sorted(held.brought):
            _write_text(text, written.rollback.brought.add(), numbers)
    return message


def decode_note(message: pb.JournalNote, kept: ConfigurationHistory) -> ConfigurationNote:
    """Returns the note in *message*. *kept* are the versions that were kept before it. Raises ``ValueError``."""
    versions = tuple(map(_VERSION.read, message.versions))
    texts = {version.number: version.text for version in (*kept.kept_versions(), *versions)}
    written = message.state
    rollback = None
    if written.HasField("rollback"):
        held = written.rollback
        rollback = Rollback(
            version=held.version,
            text=_read_text(held.text, texts),
            rm_id=held.rm_id,
            at_ns=held.at_ns,
            principal=held.principal,
            brought=frozenset(_read_text(text, texts) for text in held.brought),
            kept_out=held.kept_out,
        )
    last = written.last
    state = ConfigurationState(
        _read_text(written.brought, texts),
        tuple((each.origin, _read_text(each.text, texts)) for each in written.brought_by),
        written.file_holds,
        UpdateConfiguration(
            last.rm_id,
            _read_text(written.last_text, texts),
            last.policy_group,
            tuple((pair.name, pair.value) for pair in last.extra_config),
            last.of_file,
        ),
        rollback,
    )
    return ConfigurationNote(versions, state)


def _write_text(text: str, message: pb.JournalText, numbers: Mapping[str, int]) -> None:
    number = numbers.get(text)
    if number is not None:
        message.version = number
    else:
        message.text = text


def _read_text(message: pb.JournalText, texts: Mapping[int, str]) -> str:
    if not message.HasField("version"):
        return message.text
    if message.version not in texts:
        raise ValueError(f"it names version {message.version} of the configuration, which is not there")
    return texts[message.version]
