"""Speaks HTTP."""
