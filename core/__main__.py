"""``python -m core``: the ``kornel`` command."""

from core.cli.entry import main

main()
