"""The ``kornel`` command: one module for each group of subcommands, put together in :mod:`.app`."""
