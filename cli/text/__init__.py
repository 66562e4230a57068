"""Writes answers of a core as text for people: tables, bars, amounts."""
