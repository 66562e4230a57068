"""``python -m core``: the ``kornel`` command."""

from core.cli import main

main()
