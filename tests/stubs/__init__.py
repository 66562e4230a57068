"""Tests of stubs in other languages, which need their tools: ``make test-stubs``."""
