"""``python -m kornel``: the ``kornel`` command."""

from kornel.core.cli.app import main

main()
