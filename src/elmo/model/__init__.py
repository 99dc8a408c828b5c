"""The reference biLM in plain PyTorch, in the order in which to read it.

- `cells`: what one time step computes: LSTM, GRU, and the table of cells.
- `layers`: characters to word vectors; a cell run over a batch.
- `bilm`: both directions, all layers, boundaries and masks; packed batches, state;
  a model as plain data.
- `scalar_mix`: the learned mix of layers.
- `perplexity`: how well a language model predicts a text.
- `word_lookup`: terms of whole words, in models of ELMoForManyLangs.
"""
