"""Models by name: what names mean, and how models get onto this machine.

- `names`: any name or path of a model to its `Checkpoint`; names of published models.
- `cache`: the folders of published models; what the environment says about the network.
- `download`: one file over HTTP: resumed, checked, locked.
- `archives`: the files of a model out of a zip or tar archive.
"""
