"""Training a task, and using a trained head.

| module | what |
|---|---|
| `training` | the training loop |
| `batches` | which examples form a batch |
| `network` | features and head as one network, run on batches |
| `progress` | the snapshot from which a run is resumed |
| `curve` | metrics of a run as a plot |
| `folder` | a trained head on disk |
| `trained` | a trained head for predictions |
"""
