"""Gangs: placeholders that hold room for real asks to come, and what happens to both (scheduling.md 10).

placeholders  sets how long placeholders may wait, and asks the shim to end them
pools         decides which real asks wait for a placeholder, and which for a node
replacement   finds a placeholder for an ask, as a step of the cycle
shortfalls    watches gangs that run below their minimum
timeouts      gives up the placeholders of a gang that has waited too long

:mod:`kornel.core.partition.intake.handshake` completes a replacement once the shim has confirmed it.
"""
