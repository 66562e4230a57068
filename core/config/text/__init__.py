"""Reads texts: YAML, values by type, and the problems found in them, each with its place."""
