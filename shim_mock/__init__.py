"""A simulated cluster behind a shim. It starts the tasks that the core places, ends them, and confirms releases.

It depends on the wire contract only, through :mod:`shim_client`, and checks the core against its own accounts.
"""
