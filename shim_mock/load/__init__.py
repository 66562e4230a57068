"""Puts load on a core over the wire: generated clusters and asks, and how long the core takes to place them.

The package uses only the wire, like any shim. ``kornel bench`` and the benchmarks of the project send the same
messages.
"""
