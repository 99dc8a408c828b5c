"""Models on disk: every weight format, read and written.

| module | holds |
|---|---|
| `formats` | `FORMATS`, the table of formats; `find_model` |
| `storage` | `load_checkpoint`, `save_checkpoint` in any format |
| `folder`, `published`, `manylangs` | the formats: ours, bilm-tf and AllenNLP, ELMoForManyLangs |
| `parts` | what formats share: lists of words and characters |
| `tensors` | names and layouts of all tensors in HDF5 and in ours, one table |
| `tensors_on_disk` | safetensors, read at once or lazily |
| `checks` | names, shapes and values of tensors |
| `card` | model cards |
| `token_file` | precomputed vectors of words |
"""
