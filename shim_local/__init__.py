"""A batch system for one machine or a few, which is a shim: it runs real processes that a core has placed.

One server is the shim: it keeps the jobs, registers with the core and tells agents what to start. One agent per machine
runs the processes. Each process has its own supervisor, which survives the agent. The package itself imports nothing,
because a supervisor must be small.
"""
