"""Forecasts of a supposed change, worked out and taken back to the last bit."""
