"""Reads the state of partitions: shows what they hold, explains why something waits, and forecasts the effects of a
change."""
