"""Serves the engine by asyncio and gRPC: it translates and waits, and decides nothing.

A request becomes commands (:mod:`.wire`), which queue for the one task that owns the engine (:mod:`.runner`); the
effects go to the stream that was bound last (:mod:`.streams`). Behaviour on the wire: docs/serving.md.

::

    machine        clocks, memory, processes, turns of the event loop
    metrics        counters, and the interfaces of observers
    logs           the logger and its filters
    wire           messages <-> values of the engine, errors -> statuses
    connections    callers, their addresses, and sizes of messages
    streams        responses, sessions, presence, streams that resume
    calls          how a call is admitted and its request read
    callbacks      questions and messages to the shim
    runner         the task that owns an engine, its queue and its gate
    configuration  in force, tried, kept
    events         the latest events, decisions and refusals
    managers       the managers of a core, its lead and its health
    resolvers      the groups of users
    services       one module for each service of gRPC
"""
