"""The commands of ``kornel`` that need no running core: they start one, or read its files."""
