"""Reads one text after another, where most differ from the last one in a few lines.

The result is always the same as that of :func:`kornel.core.config.loader.load`. Queues in lines that have not changed
are not read again (:mod:`kornel.core.config.folding`), but everything that concerns the whole tree is computed and
checked over the whole tree. A text with errors, or with anything unusual, is read in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kornel.core.config.folding import can_be_counted, fold_document
from kornel.core.config.keys.declared import DeclaredQueue
from kornel.core.config.loader import Reading, interpret_document, let_go
from kornel.core.config.model import Configuration
from kornel.core.config.text.problems import ConfigError, ProblemLog
from kornel.core.config.text.yaml_reader import MOST_BYTES, read
from kornel.shared.default_configuration import DEFAULT_CONFIGURATION


@dataclass(frozen=True, slots=True)
class _Last:
    text: str
    reading: Reading


class ConfigurationReader:
    """A reader that remembers the last valid text. It must not be used by two threads at a time.

    *unavailable_resolvers*: as for :func:`~kornel.core.config.loader.load`.
    """

    def __init__(self, unavailable_resolvers: Mapping[str, str] = MappingProxyType({})) -> None:
        self._unavailable_resolvers = unavailable_resolvers
        self._last: _Last | None = None
        self.spared = 0
        """The number of queues that the last reading took over, counted with those below them; -1: it read
        everything."""

    def load(self, text: str) -> Configuration:
        """Returns the configuration in *text*. Raises ConfigError, as :func:`~kornel.core.config.loader.load` does."""
        text = text or DEFAULT_CONFIGURATION
        last = self._last
        if last is not None:
            if last.text == text:
                return last.reading.configuration
            configuration = self._read_changes(text, last)
            if configuration is not None:
                return configuration
        return self._in_full(text)

    def _in_full(self, text: str) -> Configuration:
        self.spared = -1
        log = ProblemLog()
        document = read(text, log)
        reading = interpret_document(text, document, log, self._unavailable_resolvers)
        configuration = reading.configuration
        forgotten, self._last = self._last, None
        if document.self_contained and log.kept_all and can_be_counted(text):
            self._last = _Last(text, reading)
        else:
            let_go(reading)
        if forgotten is not None:
            let_go(forgotten.reading)
        return configuration

    def _read_changes(self, text: str, last: _Last) -> Configuration | None:
        """Returns the configuration in *text* if it differs little from *last*; ``None``: it has to be read in full."""
        if not can_be_counted(text) or len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
            return None
        folded = fold_document(text, last.text, last.reading.roots)
        if not folded.folds:
            return None
        places = [_Place(node.content) for node in folded.folds.values() if isinstance(node.content, DeclaredQueue)]
        log = ProblemLog()
        reading: Reading | None = None
        try:
            document = read(folded.text, log, folded.folds)
            if document.self_contained and document.folds == len(folded.folds):
                reading = interpret_document(text, document, log, self._unavailable_resolvers)
        except ConfigError:
            pass  # Some rules stop at the first error, which folds may hide, so errors are left to a full reading.
        finally:
            for node in folded.folds.values():
                node.content = None  # A queue refers to its list, and that to the fold: a cycle.
        if reading is None or not log.kept_all:
            for place in places:
                place.restore()
            return None
        self._last = _Last(text, reading)
        let_go(last.reading, folded.left)
        self.spared = len(places)
        return reading.configuration


class _Place:
    """The place of a queue, kept in case it has to be restored."""

    def __init__(self, queue: DeclaredQueue) -> None:
        self._at = queue.at
        self._above, self._key, self._moved = queue.at.above, queue.at.key, queue.at.moved

    def restore(self) -> None:
        self._at.above, self._at.key, self._at.moved = self._above, self._key, self._moved
