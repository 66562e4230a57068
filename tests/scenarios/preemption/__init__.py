"""Preemption through the whole engine: worked cases, timers, handshakes, cycles."""
