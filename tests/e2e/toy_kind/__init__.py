"""A kind of preemption that the core does not have, and a core that was given it."""
