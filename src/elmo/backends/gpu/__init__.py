"""The GPU backend.

- `model`: the backend: recorded or launched batches, layer after layer.
- `layer`: both directions of one layer: input products, the loop over time.
- `characters`: the encoder of characters.
- `word_table`: the cache of context-free word vectors in GPU memory.
- `host_copies`: results on their way to host memory.
- `kernels`: Triton kernels and what launches them, for inference and for training.
"""
