"""Partitions as a whole: status, gauges, and whether their books agree."""
