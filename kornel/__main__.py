"""``python -m kornel``: the ``kornel`` command."""

from kornel.cli.entry import main

main()
