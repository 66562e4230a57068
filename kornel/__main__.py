"""``python -m kornel``: the ``kornel`` command."""

from kornel.core.cli.entry import main

main()
