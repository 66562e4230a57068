"""Serves the engine by asyncio and gRPC: it translates and waits, and decides nothing.

A request becomes commands (:mod:`.wire`), which queue for the one task that owns the engine (:mod:`.runner`); the
effects go to the stream that was bound last (:mod:`.streams`). Behaviour on the wire: docs/serving.md.
"""
