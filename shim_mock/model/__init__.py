"""The one model of a cluster: its tasks, their fates, starts, ends, losses and re-creation, and its answers to notices.

It asks an agenda for time and neither sends nor waits. :mod:`kornel.shim_mock.cluster` connects it to a core over gRPC,
and :mod:`kornel.simulate` to an engine in virtual time.
"""
