"""Models by name: what names mean, and how models get onto this machine.

| module | holds |
|---|---|
| `names` | `open_model`: any name or path of a model -> `Checkpoint` |
| `registry`, `published.toml` | names of bundled and published models |
| `cache` | the folders of published models; what the environment says about the network |
| `download` | one file over HTTP: resumed, checked, locked |
| `archives` | the files of a model out of a zip or tar archive |
"""
