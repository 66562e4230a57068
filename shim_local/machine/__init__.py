"""One machine: its capacity, the agent, and the supervisors of processes."""
