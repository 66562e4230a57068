"""Keeps the durable history: applications, preemptions, events and configurations, in a database for which the engine
never waits.

::

    effects ─► records ─► bounded queue ─► spool on disk (fsync) ─► database ─► queries, retention
               event loop                  spooling thread          a process of its own
"""
