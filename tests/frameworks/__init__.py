"""Workers of other frameworks as groups of kornel-local, which need their packages: ``make test-workers``."""
