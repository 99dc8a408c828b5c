"""The reference biLM in plain PyTorch: cells, layers, state, packing."""
