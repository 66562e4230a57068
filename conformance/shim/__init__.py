"""A scripted core that judges shims: it starts the shim's command, plays a core for it, and provokes it.

A *session* (:mod:`kornel.conformance.shim.sessions`) is one start of the shim with one provocation, so that what
breaks it is known. Some *checks* (:mod:`kornel.conformance.shim.checks`) are judged all the time by what the shim sends
(:mod:`kornel.conformance.shim.core`), the others by how it takes the provocation. Only the wire is known here.
"""
