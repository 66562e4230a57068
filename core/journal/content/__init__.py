"""Defines what stands in a journal: the calls of an engine as values and as records, and their repetition."""
