"""Kornel's scheduler core: a deterministic engine and the gRPC service around it.

Imports point one way: ``domain`` <- ``config`` and ``model`` <- ``policies`` <- ``partition`` <- ``service``.
Everything below ``service`` is synchronous and knows neither clock, network, logging nor randomness.
"""
