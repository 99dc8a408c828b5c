"""Measurements for those who develop elmo; each is run by `python -m benchmarks.NAME`."""
