"""Words -> the vectors that a head reads: static vectors and ELMo.

- `word_features`: the module that joins static vectors and mixed layers of ELMo.
- `static_words`: a table of vectors without context.
- `inputs`: what `word_features` needs of sentences, prepared once and looked up by batch.
- `layer_cache`: layers of sentences on disk.
"""
