"""The REST interface ``/ws/v1``: HTTP to the engine that gRPC serves, for reading only."""
