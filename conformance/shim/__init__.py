"""A scripted core that tests shims: it starts the shim's command, acts as its core, and provokes it.

A *session* (:mod:`kornel.conformance.shim.sessions`) is one start of the shim with one provocation, so that it is plain
which provocation breaks it. Some *checks* (:mod:`kornel.conformance.shim.checks`) are judged by everything that the
shim sends (:mod:`kornel.conformance.shim.core`), the others by how it reacts to the provocation. The package knows only
the wire.
"""
