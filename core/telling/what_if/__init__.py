"""Forecasts of supposed changes, which are made on the live records and completely undone."""
