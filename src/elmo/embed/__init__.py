"""Sentences to vectors: words, batches, layers, selection, results."""
