"""Defines the values and rules of scheduling. This package imports only the standard library."""
