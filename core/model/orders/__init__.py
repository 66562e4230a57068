"""Keeps orders while what they order changes: who is first among groups, queues, nodes and those who wait."""
