"""Defines the configuration that is in force if none is given."""

from __future__ import annotations

from typing import Final

DEFAULT_CONFIGURATION: Final = """\
partitions:
  - name: default
    placementrules:
      - name: tag
        value: namespace
        create: true
    queues:
      - name: root
        submitacl: '*'
"""
"""The configuration that an empty text stands for (config.md 1)."""
