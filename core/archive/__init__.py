"""Durable history: applications, preemptions, events and configurations in a database that the engine never waits for.

::

    effects ─► records ─► bounded queue ─► spool on disk (fsync) ─► database ─► queries, retention
               event loop                  spooling thread          a process of its own
"""
