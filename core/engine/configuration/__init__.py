"""Puts configurations into force in new, running and hypothetical partitions."""
