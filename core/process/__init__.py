"""Runs the process: assembles all parts, starts them, and stops them in order. Only the command line imports it."""
