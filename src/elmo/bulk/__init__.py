"""Whole text files -> files of vectors, in constant memory and resumable.

- `embed_file`: text -> windows of sentences -> vectors -> writer.
- `writer`: the table of output formats; checks of paths; the base of all writers.
- `hdf5`: HDF5, a file that grows; a journal makes its changes atomic.
- `spool`: npz, safetensors and Parquet, which are assembled when all vectors are there.
"""
