"""Model files of tests, read and edited."""

import json

import h5py
import torch

from elmo.weights.formats import load_checkpoint

EVERY_KIND = {
    "cells": ("lstm", "gru"),
    "reads": ("characters", "words"),
    "spells": ("bytes", "code points"),
}


def load(path):
    return load_checkpoint(path)


def edit_json(path, edit):
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def edit_hdf5(path, edit):
    with h5py.File(path, "r+") as file:
        edit(file)


def put(file, name, values):
    """Write a dataset in the place of another."""
    if name in file:
        del file[name]
    file[name] = values


def assert_same_tensors(found, expected):
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == torch.float32
        assert torch.equal(found[name], tensor), name
