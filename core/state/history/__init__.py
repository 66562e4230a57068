"""The event history: records of everything that happens, for shims and clients."""
