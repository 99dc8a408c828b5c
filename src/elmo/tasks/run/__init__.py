"""Training a task, and using a trained head.

- `training`: the training loop.
- `network`: features and head as one network, run on batches.
- `progress`: the snapshot from which a run is resumed, and its metrics as a plot.
- `folder`: a trained head on disk.
- `trained`: a trained head for predictions.
"""
