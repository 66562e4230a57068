"""Known gaps: cases that a core may fail, with the reason. They must not pass, so that a list of gaps stays true.

A file is TOML or YAML with a mapping of IDs to reasons, or text with one ``ID reason`` per line. In every format an ID
may be a range of case numbers, and ``#`` begins a comment.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from kornel.conformance.case import case_numbers
from kornel.conformance.known_gaps import GAPS
from kornel.conformance.outcome import Result, Verdict

OWN: Final = "kornel"
"""The name that stands for the gaps of the core in this repository."""


def load_gaps(source: str) -> dict[str, str]:
    """Returns the gaps in file *source*, or :data:`OWN`. Raises ValueError if it cannot be read or has another
    content."""
    if source == OWN:
        return {str(number): reason for number, reason in GAPS.items()}
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read the gaps: {error}") from None
    try:
        match path.suffix:
            case ".toml":
                entries: object = tomllib.loads(text)
            case ".yaml" | ".yml":
                entries = yaml.safe_load(text)
            case _:
                entries = dict(line.split(None, 1) for line in _parse_lines(text))
    except (tomllib.TOMLDecodeError, yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return _parse_gaps(path, entries or {})


def judge_result(result: Result, gaps: Mapping[str, str]) -> Result:
    """Returns *result* judged by *gaps*: a known gap may fail, but must not pass."""
    reason = gaps.get(result.case.id)
    if reason is None:
        return result
    if result.verdict is Verdict.PASS:
        said = f"passes, but is listed as a known gap: {reason}"
        return Result(result.case, Verdict.FAIL, said, result.took_s)
    return Result(result.case, Verdict.GAP, reason, result.took_s, result.tried)


def _parse_lines(text: str) -> list[str]:
    stripped = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in stripped if line]


def _parse_gaps(path: Path, entries: object) -> dict[str, str]:
    if not isinstance(entries, Mapping):
        raise ValueError(f"{path}: expected a mapping of case numbers to reasons")
    gaps: dict[str, str] = {}
    for name, reason in entries.items():
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"{path}: {name} has no reason")
        text = str(name)
        ids = [text] if text[:1].isalpha() else [str(number) for number in case_numbers(text)]
        gaps.update(dict.fromkeys(ids, reason.strip()))
    return gaps
