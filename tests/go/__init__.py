"""Tests of what is written in Go, which need it installed: ``make test-go``."""
