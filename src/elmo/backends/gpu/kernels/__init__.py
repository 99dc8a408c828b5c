"""Triton kernels, each with the function that launches it, and loops in C++.

For inference:

- `word_filters`: the highest response of each character filter, by a table.
- `inference_cell`: the elementwise parts of an LSTM step.
- `inference_row`: an LSTM step of a single row, products included.
- `inference_graphs`: CUDA graphs of short computations.
- `word_numbers`: words of Python lists as numbers (C++).
- `sentence_copies`: vectors of a batch to host memory, sentence by sentence (C++).

For training:

- `character_windows`: filters over characters, forward and backward pass.
- `highway`: the elementwise part of a highway layer.
- `training_cell`: the elementwise parts of an LSTM step over streams.
- `sampled_softmax`: the loss of a sampled softmax.
- `small_lstm`: a whole LSTM in one launch, for task heads.

For both:

- `gpu`: whether Triton can run, and what kernels share.
"""
