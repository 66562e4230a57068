"""Holds the records of which the state of a partition consists, besides those of :mod:`kornel.core.model`."""
