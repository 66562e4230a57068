"""A batch system for one machine or a few, as a shim: real processes, placed by a core.

One server is the shim: it keeps the jobs, registers with the core and tells agents what to start. One agent per machine
runs processes, each under a supervisor of its own that survives the agent. Nothing here is imported by the package
itself, because a supervisor must be small.
"""
