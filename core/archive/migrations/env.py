"""Runs the migrations on the connection that the archive hands over."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table="history_version")
context.run_migrations()
