"""Tests at a real API server of Kubernetes: ``make test-kubernetes``."""
