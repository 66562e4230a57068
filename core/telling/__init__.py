"""Everything that only shows what the engine holds and decides."""
