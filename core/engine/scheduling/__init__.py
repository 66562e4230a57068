"""Runs the allocation cycle: chooses the next ask and its node, and asks the shim before a placement."""
