"""Low-level kernels: Triton for GPUs, C++ for CPUs. Each has a plain reference elsewhere."""
