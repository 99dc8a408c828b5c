"""Readers of task data: one module a format, each giving a list of examples."""
