"""Writes the journal of the core that leads, and holds effects back until their records are durable."""
