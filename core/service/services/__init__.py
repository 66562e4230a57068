"""The services of gRPC, a module for each."""
