"""Who computes: plain PyTorch, the CPU kernel, or a GPU."""
