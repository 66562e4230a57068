"""What-ifs of tests that have an engine, but no server: each is answered in a copy of the process, as there."""

from __future__ import annotations

from kornel.core.service.machine.process_copies import ProcessCopy
from kornel.core.telling.reader import PartitionReader
from kornel.core.telling.what_if.supposition import Forecast, Supposition


def suppose(reader: PartitionReader, question: Supposition) -> Forecast:
    """Forecasts the consequences of *question*."""
    return ProcessCopy(lambda: reader.suppose(question)).await_answer()
