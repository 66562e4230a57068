"""A journal as lines of JSON, with or without the names in it.

Lines without names show what happened when, and which amounts were asked for, but not by whom or where: each name is
replaced by its kind and a number, which is always the same for the same name. The texts of configurations, remarks,
tags and attributes are left out, since they can contain anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson
from google.protobuf.json_format import MessageToDict

from kornel.core.journal.content.commands import encode_command
from kornel.core.journal.content.records import Record
from kornel.core.service.streams.resuming import Received
from kornel.v1 import journal_pb2 as pb

_KINDS: Final = MappingProxyType(
    {
        "key": "key",
        "further_keys": "key",
        "instead": "key",
        "application_id": "application",
        "node_id": "node",
        "required_node": "node",
        "rm_id": "manager",
        "user": "user",
        "by": "user",
        "groups": "group",
        "looked_up": "group",
        "task_group": "task-group",
        "allocation_id": "allocation",
    }
)
"""The kinds of names, by the field that contains them."""

_SHOWN: Final = frozenset({"type", "foreign", "gang_style", "version", "timeout_ns", "at_ns", "created_s"})
"""The fields whose text reveals no names, and numbers that are texts in JSON."""

_PARTITION: Final = re.compile(r"\[(.*)\](.*)", re.DOTALL)


class Pseudonyms:
    """Pseudonyms for names, which are numbered in the order of their appearance."""

    def __init__(self) -> None:
        self._made: dict[str, dict[str, str]] = {}

    def replace_name(self, kind: str, name: str) -> str:
        """Returns the pseudonym for *name*, a name of *kind*, or an empty text for an empty name."""
        if not name:
            return ""
        made = self._made.setdefault(kind, {})
        return made.setdefault(name, f"{kind}-{len(made) + 1}")

    def replace_queue(self, path: str) -> str:
        """Returns *path* with each part replaced except the root."""
        return ".".join(part if part == "root" else self.replace_name("queue", part) for part in path.split("."))

    def replace_partition(self, name: str) -> str:
        """Returns the full name of a partition with both parts replaced."""
        found = _PARTITION.fullmatch(name)
        if found is None:
            return self.replace_name("partition", name)
        return f"[{self.replace_name('manager', found[1])}]{self.replace_name('partition', found[2])}"


def write_line(record: Record, pseudonyms: Pseudonyms | None = None) -> bytes:
    """Returns *record* as a line of JSON, without the end of the line. With *pseudonyms*, names are replaced."""
    call, result = record.call, record.result
    line: dict[str, object] = {
        "sequence": record.sequence,
        "epoch": record.epoch,
        "place": call.place,
        "call": call.kind.name,
        "now_ns": call.now_ns,
    }
    if call.budget:
        line["budget"] = call.budget
    if call.beginning is not None:
        line["beginning"] = {
            "version": call.beginning.version,
            "afresh": call.beginning.afresh,
            **call.beginning.options._asdict(),
        }
    if call.command is not None:
        message = pb.JournalCommand()
        encode_command(call.command, message)
        command = MessageToDict(message, preserving_proto_field_name=True)
        line["command"] = command if pseudonyms is None else _strip_names(command, "", pseudonyms)
    if call.note:
        note = pb.JournalNote.FromString(call.note)
        line["note"] = MessageToDict(note, preserving_proto_field_name=True) if pseudonyms is None else {}
    if isinstance(call.receipt, Received):
        line["received"] = {"kind": call.receipt.kind, "entries": call.receipt.entries}
    elif call.receipt is not None and pseudonyms is None:
        line["registered"] = call.receipt._asdict()
    line["outcome"] = result.outcome.name
    line["effects"] = result.effects
    if result.effects:
        line["effects_checksum"] = f"{result.effects_sum:08x}"
    return orjson.dumps(line)


def _strip_names(value: Any, field: str, pseudonyms: Pseudonyms) -> Any:
    if isinstance(value, Mapping):
        if field == "refused":  # Pairs of a node and a reason.
            return {"name": pseudonyms.replace_name("node", value.get("name", ""))}
        return {name: _strip_names(each, name, pseudonyms) for name, each in value.items()}
    if isinstance(value, list):
        if field in ("tags", "attributes", "build_info", "extra_config"):
            return len(value)
        return [_strip_names(each, field, pseudonyms) for each in value]
    if not isinstance(value, str) or field in _SHOWN:
        return value
    if field in _KINDS:
        return pseudonyms.replace_name(_KINDS[field], value)
    if field == "queue":
        return pseudonyms.replace_queue(value)
    if field == "partition":
        return pseudonyms.replace_partition(value)
    try:
        int(value)
    except ValueError:
        return ""
    # In JSON, long numbers are texts. Fields in which another text could look like a number were handled above.
    return value if field in ("quantity", "priority", "question", "notice", "last", "instance") else ""
