"""Command ``kornel serve``, which runs a core. :mod:`.serving` starts it."""

from __future__ import annotations

from kornel.cli.options import refuse_input, spread_options
from kornel.core.process.serve_options import ServeOptions


@spread_options
def serve(options: ServeOptions) -> None:
    """Run a core until SIGTERM or SIGINT, then finish the requests it has received and exit 0.

    Exits 2 when a file or the combination of options cannot be used, 1 when it cannot listen on the address, cannot
    open the history where --history says, or cannot go on from --journal.
    """
    if options.watch and options.config_file is None:
        raise refuse_input("--watch needs a file to watch: --config FILE")
    # Imported here, because it imports the whole server, and all other commands are clients.
    from kornel.core.commands.serving import serve_core  # noqa: PLC0415

    serve_core(options)
