"""A simulated cluster behind a shim: it starts what it is given, ends it, and confirms what it is asked to
stop.

It knows the wire contract only, through :mod:`shim_client`, and checks what the core does from its own
accounts.
"""
