"""Errors of every precision against float64, and their effect on a probe."""
