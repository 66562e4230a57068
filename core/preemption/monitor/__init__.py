"""The periodic proportional policy, which gives notice before it takes (preemption.md E)."""
