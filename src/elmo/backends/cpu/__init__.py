"""The CPU backend.

- `model`: the backend and its recurrent layers.
- `characters`: the encoders of words.
- `products`: matrix products with constant weights, at each precision.
- `native`: the C++ kernel as Python functions; its sources lie in `src/`
  (`native.cpp` lists them).
- `compiler`: builds the kernel for this CPU, and caches it.
"""
