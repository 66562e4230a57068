"""Asks and allocations as they stand, and why an ask waits."""
