"""Kernels in Triton, each beside what launches it."""
