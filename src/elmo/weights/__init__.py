"""Models on disk: every weight format, read and written.

- `formats`: the table of formats; a model found, loaded and saved in any of them.
- `files`: what formats share: lists of words, safetensors, checks of tensors.
- `folder`: our own format.
- `published`: the HDF5 of bilm-tf and AllenNLP.
- `manylangs`: models of ELMoForManyLangs.
- `tensors`: names and layouts of all tensors in the published files and in ours, one table.
- `card`: model cards.
- `integrity`: SHA-256 of the files of a model, recorded and verified.
- `token_file`: precomputed vectors of words.
"""
