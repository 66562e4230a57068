"""Tests of what deploy/ offers."""
