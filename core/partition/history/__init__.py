"""The event history: what is told of everything that happens."""
