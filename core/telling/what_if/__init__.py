"""Forecasts of supposed changes, which are made on the records of a copy of the process."""
