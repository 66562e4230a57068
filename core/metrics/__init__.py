"""Metrics for Prometheus: upstream's under upstream's names, and ours (rest.md 6, docs/metrics.md)."""
