"""Gangs: placeholders that hold room for real asks to come, and what happens to both (scheduling.md 10).

placeholders  how long they may wait, and how the core asks the shim to end them
pools         which real asks wait for a placeholder, and which for a node
replacement   the step of the cycle that finds a placeholder for an ask
handshake     from there until the shim confirms, or something prevents it
timeouts      what happens to a gang that has waited too long
"""
