"""Answers to "why": pure reading of a partition, in plain values."""
