"""Migrates the history database from one version to the next."""
