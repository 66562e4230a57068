"""Load on a core, over the wire: made-up clusters and asks, and how long a core takes to place them.

Knows the wire only, like any shim. ``kornel bench`` and the benchmarks of the project send the same messages.
"""
