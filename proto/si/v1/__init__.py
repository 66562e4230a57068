"""Version 1 of the scheduler interface: messages in ``si_pb2``, stub and servicer in ``si_pb2_grpc``."""
