"""Translates between messages and the engine's values, and errors into statuses of gRPC."""
