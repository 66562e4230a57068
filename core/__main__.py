"""``python -m core``: the ``kornel`` command."""

from core.cli.app import main

main()
