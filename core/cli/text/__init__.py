"""Answers of a core as text for people: tables, bars, amounts."""
