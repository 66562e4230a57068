"""The journal: every call of the engine written down, so that another process decides the same again.

``calls`` is what a call of the engine is; ``commands``, ``records`` and ``effect_sums`` write one as bytes; ``store``
keeps blocks of records in a database; ``committer`` is the thread that brings them there; ``gate`` holds back what a
call decided until its record is durable; ``recording`` stands between the service and the engine; ``reading`` checks
what a store holds, ``replay`` decides it again, ``following`` does so while it grows; ``journal`` is all of that for
one core, and ``standby`` for one that follows another.

A core starts with the engine of a snapshot and plays what was written since (``starting``). ``snapshots`` writes one as
bytes, ``snapshot_store`` keeps it, ``snapshot_process`` makes it beside the core and removes what ``retention`` does
not keep, ``snapshot_keeper`` says when.
"""
