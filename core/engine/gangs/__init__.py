"""Gangs: placeholders that hold room for real asks to come, and what happens to both (scheduling.md 10).

placeholders  sets how long placeholders may wait, and asks the shim to end them
pools         decides which real asks wait for a placeholder, and which for a node
replacement   finds a placeholder for an ask, as a step of the cycle
shortfalls    watches gangs that run below their minimum
timeouts      gives up the placeholders of a gang that has waited too long

gang_turns    places all members of a gang in its turn, at the places that gang_places finds
gang_vetting  asks the shim about these places
gang_savings  saves room for a gang that has waited, and gang_holds looks after the places that are held for one

:mod:`kornel.core.engine.intake.handshake` completes a replacement once the shim has confirmed it.
"""
