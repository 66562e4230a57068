"""The process: every part put together, started, and brought down in order. Only the CLI imports it."""
