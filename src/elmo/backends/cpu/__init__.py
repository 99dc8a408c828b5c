"""The CPU backend: packed weights and a kernel in C++."""
