"""Whole text files -> files of vectors, in constant memory and resumable.

| module | holds |
|---|---|
| `embed_file` | `embed_file`: text -> windows of sentences -> vectors -> writer |
| `formats` | `FORMATS`, the table of output formats; checks of an output; `open_writer` |
| `writer` | `VectorWriter`: lock, working folder, resuming; `VectorInfo`, the facts of a file |
| `hdf5`, `journal` | HDF5, a file that grows; its changes made atomic by a journal |
| `spool` | writers of formats that cannot grow: vectors wait in the working folder |
| `npz`, `safetensors_file`, `parquet` | the formats that are assembled from the spool |
"""
