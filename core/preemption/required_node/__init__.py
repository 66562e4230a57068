"""Room on the one node that an ask must run on (preemption.md C)."""
