"""``python -m kornel.conformance``."""

from kornel.conformance.cli import main

if __name__ == "__main__":
    main()
