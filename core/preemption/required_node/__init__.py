"""Makes room on the one node that an ask requires (preemption.md C)."""
