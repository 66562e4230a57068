"""What is encoded once and kept does not keep the encoder's buffers."""

from __future__ import annotations

import subprocess
import sys

MEASURED = """
from kornel.core.domain.effects import EventRecorded
from kornel.core.telling.encoding.yunikorn.events import encode_event_line

def resident_mb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 2**20

events = [EventRecorded(3, f"n{number}", "", 1, 302, number, None, "schedulable: false") for number in range(50_000)]
before = resident_mb()
lines = [encode_event_line(event) for event in events]
print(sum(map(len, lines)) / 2**20, resident_mb() - before)
"""


def test_events_that_are_kept_take_about_what_they_say() -> None:
    """In a process of its own, whose memory nobody has made holes in. Without care it is 200 MB for 6 MB of text."""
    measured = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    text_mb, resident_mb = map(float, measured.stdout.split())
    assert text_mb > 5
    assert resident_mb < 5 * text_mb
