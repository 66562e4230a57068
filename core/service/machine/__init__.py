"""Reaches the machine: its clock, memory, sockets and processes; and divides the turns of the event loop."""
