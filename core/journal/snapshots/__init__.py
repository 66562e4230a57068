"""Keeps engines as snapshots, and decides for how long."""
