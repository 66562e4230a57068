"""Gangs: placeholders that hold room for real asks to come, and what becomes of both (scheduling.md 10).

placeholders  how long they may wait, and telling them to leave
pools         which real asks wait for a placeholder, which for a node
replacement   the step of the cycle that finds a placeholder for an ask
handshake     from there until the shim confirms, or anything comes between
timeouts      a gang that waited too long
"""
