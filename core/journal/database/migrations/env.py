"""Runs the migrations on the connection that the store passes."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table="journal_version")
context.run_migrations()
