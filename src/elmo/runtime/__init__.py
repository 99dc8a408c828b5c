"""Everything below the models that is not about text: files, devices, signals, tables.

- `files`: atomic writes, locks, the cache folder, SHA-256.
- `input_files`: one reader of files that may be damaged or hostile; JSON.
- `hdf5_files`: one way to open HDF5 files that may be damaged.
- `array_files`: named arrays in the safetensors format, memory-mapped.
- `metrics_file`: the growing `metrics.jsonl` of a training run.
- `optimizer_state`: an optimizer's state as named tensors.
- `devices`: PyTorch devices, copies to them, exact products, free memory.
- `interrupts`: Ctrl-C and SIGTERM deferred to safe points.
- `tables`: counts and tables as text.
"""
