"""A scripted core that tests shims: it starts the shim's command, acts as its core, and creates difficult situations.

A *session* (:mod:`kornel.conformance.shim.sessions`) is one start of the shim with one difficult situation, so that it
is clear which situation it does not handle. Some *checks* (:mod:`kornel.conformance.shim.checks`) are judged by
everything that the shim sends (:mod:`kornel.conformance.shim.core`), the others by its reaction to the situation. The
package depends only on the wire contract.
"""
