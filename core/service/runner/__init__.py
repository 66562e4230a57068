"""The one task that owns an engine, the queue before it, and the gate behind it."""
