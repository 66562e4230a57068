"""Reaches the machine: its clock, memory and processes; and divides the turns of the event loop."""
