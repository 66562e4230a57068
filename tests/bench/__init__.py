"""Workloads that measure the core from outside: ``python -m tests.bench`` runs them and prints what it found."""
