"""Serves paths."""
