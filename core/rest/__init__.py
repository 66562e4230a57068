"""Serves the REST interface ``/ws/v1``: HTTP to the engine that gRPC serves, mainly for reading."""
