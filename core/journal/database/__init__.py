"""Keeps a journal in a database: its settings and tables, the blocks in it, and the lease that shows who leads."""
