"""Speed and memory as batches, sentences and corpora grow."""
