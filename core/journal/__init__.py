"""The journal: every call of the engine written down, so that another process decides the same again.

``calls`` is what a call of the engine is; ``commands``, ``records`` and ``effect_sums`` write one as bytes; ``store``
keeps blocks of records in a database; ``committer`` is the thread that brings them there; ``gate`` holds back what a
call decided until its record is durable; ``recording`` stands between the service and the engine; ``reading`` checks
what a store holds, ``replay`` decides it again; ``journal`` is all of that for one core. Imports point from the end of
this list to its beginning.

A core starts again by playing the journal from the beginning of the engine's life. What shortens that belongs here too
when it comes: snapshots (a record may be followed from any state that is known to be that of its number), a standby
(another reader of the same store; records have an epoch so that an append can be fenced), and other versions of the
engine (:class:`kornel.core.journal.calls.Beginning` names the version that wrote what follows).
"""
