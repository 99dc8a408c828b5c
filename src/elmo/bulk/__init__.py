"""Whole files of vectors: HDF5, npz, safetensors, Parquet."""
