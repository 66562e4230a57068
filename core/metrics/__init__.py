"""Writes metrics for Prometheus: those of YuniKorn under its names, and Kornel's own (rest.md 6, docs/metrics.md)."""
