"""Text on its way to a model, and word vectors that were made elsewhere.

- `files`: lines of plain or compressed files; tokenizers.
- `english`: the rule tokenizer for raw English.
- `sentences`: checks of what callers pass as sentences and texts.
- `mismatch`: a note on text that does not look like what a model expects.
- `vocabulary`: lists of words.
- `alphabet`: the characters of a model that encodes words as code points.
- `characters`: words as the ids that a model reads.
- `static_vectors`: GloVe and word2vec, from files and packages.
- `conllu`: the format of Universal Dependencies.
- `made_up`: random text with the statistics of real text, for benchmarks.
"""
