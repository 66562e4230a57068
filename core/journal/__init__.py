"""The journal contains every call of the engine, so that another process can repeat the calls and make the same
decisions.

``content`` says what stands in it: a call as a value, as bytes, and repeated (``replay``); ``recording`` wraps the
engine for the service. ``database`` keeps blocks of records. ``writing`` is the way into it: a thread that writes
(``committer``), and what holds back the decisions of a call until its record is durable (``gate``). ``journal``
combines all of that for one core, and ``standby`` for a core that follows another one.

A core starts with the engine of a snapshot and replays the records that were written since then (``following``).
``snapshots`` writes and keeps them; ``snapshot_process`` makes one in a separate process and removes everything that
``retention`` does not keep; ``snapshot_keeper`` decides when.
"""
