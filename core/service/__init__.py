"""The asyncio and gRPC shell around the engine: translates, waits, and decides nothing.

A request becomes commands (:mod:`.wire`), commands queue for the one task that owns the engine (:mod:`.runner`), and
what the engine answers goes to the stream bound last (:mod:`.streams`). Behaviour on the wire: docs/serving.md.
"""
