"""The REST interface ``/ws/v1``: HTTP around the same engine that gRPC serves, reading only."""
