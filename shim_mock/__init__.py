"""A simulated cluster behind a shim, which starts the tasks that are placed, ends them, and confirms releases.

It knows the wire contract only, through :mod:`shim_client`, and checks what the core does from its own accounts.
"""
