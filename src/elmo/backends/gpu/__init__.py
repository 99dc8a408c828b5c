"""The GPU backend: fused layers, word table, kernels in Triton."""
