"""Default values, used unless an administrator gives others."""

from __future__ import annotations

from typing import Final

CERTIFICATE_DAYS: Final = 365
"""The days for which a certificate that is made here is valid."""
