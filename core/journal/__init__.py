"""The journal contains every call of the engine, so that another process can repeat the calls and make the same
decisions.

``calls`` defines a call of the engine as a value; ``commands``, ``records`` and ``effect_sums`` write one as bytes;
``store`` keeps blocks of records in a database; ``committer`` is the thread that writes them there; ``gate`` holds back
the decisions of a call until its record is durable; ``recording`` wraps the engine for the service; ``reading`` checks
the content of a store, ``replay`` repeats its calls, and ``following`` does so while the journal grows; ``journal``
combines all of that for one core, and ``standby`` for a core that follows another one.

A core starts with the engine of a snapshot and replays the records that were written since then (``starting``).
``snapshots`` writes a snapshot as bytes and ``snapshot_store`` stores it; ``snapshot_process`` makes it in a separate
process and removes everything that ``retention`` does not keep; ``snapshot_keeper`` decides when.
"""
